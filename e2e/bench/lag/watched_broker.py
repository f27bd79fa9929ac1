"""A broker with a probe in its loop, as a program of the rig."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from e2e.bench.lag.probe import Figures
from e2e.harness.processes import Broker
from e2e.harness.program import Program
from e2e.harness.results import ROOT

PATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


class WatchedBroker(Broker):
    """phases: the names of what it goes through, each begun by `next_phase`."""

    phases: tuple[str, ...] = ()

    def __init__(self, directory: Path, config: Mapping[str, str], name: str = "broker-1") -> None:
        super().__init__(directory, config, name)
        self.out = directory / "phases.json"
        self.environment = {**os.environ, "PYTHONPATH": PATH}

    def launch(self) -> None:
        self.command = [sys.executable, "-m", "e2e.bench.lag.watched", str(self.out), *self.phases]
        for key, value in self.config.items():
            self.command += ["--override", f"{key}={value}"]
        Program.launch(self)

    def next_phase(self) -> None:
        """One phase ends, and the next begins."""
        self.send(signal.SIGUSR1)

    def seen(self) -> list[Figures]:
        """By phase, once it has ended in order."""
        return msgspec.json.decode(self.out.read_bytes(), type=list[Figures])
