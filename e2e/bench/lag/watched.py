"""A broker that looks at its own loop: `python -m e2e.bench.lag.watched OUT PHASE ... --override KEY=VALUE ...`.

SIGUSR1 ends a phase and begins the next of those named; when the broker ends, what was seen in each is written to OUT as JSON.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import msgspec
from logfleet.cli.broker import read_config, run, serve
from logfleet.io.logging import start_logging

from e2e.bench.lag.probe import Probe


async def main(options: argparse.Namespace) -> int:
    probe, phases = Probe(), iter(options.phases)
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGUSR1, lambda: probe.begin(next(phases, ""))
    )
    probe.start()
    code = await serve(read_config(None, tuple(options.override)))
    options.out.write_bytes(msgspec.json.encode(probe.phases))
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("phases", nargs="*")
    parser.add_argument("--override", action="append", default=[])
    start_logging("info")
    sys.exit(run(main(parser.parse_args())))
