"""`logfleet doctor`: check whether a broker has all it needs, and what to do if not."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from logfleet.cli.broker import config_options, read_config
from logfleet.cli.output.formats import Column, Output, output_option
from logfleet.config.broker import BrokerConfig, ConfigError
from logfleet.io.files import PosixFiles
from logfleet.node.tools.doctor import examine
from logfleet.node.tools.finding import Finding, Level, worst

COLUMNS: Final = (
    Column("CHECK", "check"),
    Column("LEVEL", "level"),
    Column("FINDING", "message"),
)


@click.command()
@config_options
@output_option
def doctor(
    properties: Path | None, *, overrides: tuple[str, ...], env_prefix: str, output: Output
) -> None:
    """Check ports, disks, limits, clock, addresses, metadata and keys for a broker, running or not.

    Give what `logfleet broker` gets. Every line shows a finding, and what to do if it is a problem.

    \b
    logfleet doctor server.properties
    logfleet doctor -o json | jq -r '.[] | select(.level == "failed") | .message'

    Exit codes: 0 nothing failed (there may be warnings), 1 something did, 2 the command line is
    wrong.
    """
    try:
        config = read_config(properties, overrides, env_prefix)
    except (ConfigError, OSError) as error:
        found = [_refused(str(error))]
    else:
        found = asyncio.run(_examined(config))
    rows = [{"check": each.check, "level": each.level, "message": each.message} for each in found]
    output.rows(rows, COLUMNS, name="check")
    if worst(found) is Level.FAILED:
        sys.exit(1)


def _refused(message: str) -> Finding:
    return Finding(
        "configuration", Level.FAILED, f"{message}: no broker starts with it, correct it first"
    )


async def _examined(config: BrokerConfig) -> list[Finding]:
    return [finding async for finding in examine(config, PosixFiles())]
