"""`make bench`: processor time of the broker per record and per request, beside that of a bare server in the same run.

Rounds against the broker and against the bare server take turns, so that a busy machine is busy for both. What counts is
processor time of the server's process, never the clock on the wall.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from e2e.bench.conditions import bench_rig, conditions, print_conditions
from e2e.bench.cpu import rss_kib, run_undisturbed
from e2e.bench.requests.cases import CASES
from e2e.bench.requests.clients import client_rows
from e2e.bench.requests.load import Measured
from e2e.bench.requests.report import Row, as_json, memory, table
from e2e.bench.requests.spec import Case, Kind, Spec, save
from e2e.bench.requests.topics import Topics
from e2e.harness.processes import Rig
from e2e.harness.program import Program
from e2e.harness.results import RESULTS, ROOT, source_key, store

SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    ":(glob)e2e/bench/*.py",
    "e2e/bench/requests",
)
STORE = RESULTS / "bench.json"
ROUNDS = 7
ROUND_S_MAX = 300
CLIENT_ROUNDS = 3
SERVER_CPU, LOAD_CPU = 0, 1
BROKER_CONFIG = {
    # what a round has written goes soon after it: the disk holds a few rounds
    "log.segment.delete.delay.ms": "0",
}


class BareServer(NamedTuple):
    """spec: with the frames that it knows."""

    program: Program
    port: int
    spec: Path


class Bench:
    """The two servers and what was measured of them.

    realtime: servers and load generator have a processor each, before everything else on the machine. idle_kib: resident memory of the
    broker before anybody connects.
    """

    def __init__(self, rig: Rig, cases: Sequence[Case], *, realtime: bool) -> None:
        self._rig = rig
        self._realtime = realtime
        self._broker = rig.broker(BROKER_CONFIG)
        self.idle_kib = rss_kib(self._broker.pid)
        self._prefer(self._broker)
        self._topics = Topics(self._broker.bootstrap, rig.directory)
        self._bare: dict[str, BareServer] = {}
        self.rows = [Row(case, [], []) for case in cases]

    @property
    def now_kib(self) -> int:
        """Resident memory of the broker now."""
        return rss_kib(self._broker.pid)

    def round(self) -> None:
        """Measure both servers once in every case."""
        for number, row in enumerate(self.rows):
            spec = self._topics.spec(row.case)
            path = self._rig.directory / f"case-{number}.spec"
            save(spec, path)
            moves = row.case.kind is Kind.PRODUCE
            row.broker.append(self._load(path, self._broker.port, self._broker.pid, moves=moves))
            bare = self._bare_server(row.case, spec)
            row.bare.append(self._load(bare.spec, bare.port, bare.program.pid, moves=False))
            self._topics.drop(spec)

    def librdkafka(self) -> list[Row]:
        """Rounds of a real client beside nothing: what a broker's records cost when librdkafka makes the batches."""
        return client_rows(self._broker.bootstrap, self._broker.pid, rounds=CLIENT_ROUNDS)

    def _prefer(self, program: Program) -> None:
        if self._realtime:
            run_undisturbed(program.pid, SERVER_CPU)

    def _load(self, spec: Path, port: int, pid: int, *, moves: bool) -> Measured:
        """One round against one server. Raises CalledProcessError if an answer is wrong."""
        command = [sys.executable, "-m", "e2e.bench.requests.load", str(spec), str(port), str(pid)]
        if moves:
            command.append("--moves")
        if self._realtime:
            command.append(f"--cpu={LOAD_CPU}")
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, cwd=ROOT, timeout=ROUND_S_MAX
        )
        return msgspec.json.decode(done.stdout, type=Measured)

    def _bare_server(self, case: Case, spec: Spec) -> BareServer:
        """The bare server for a case: the same process in all rounds, as the broker is, with the first round's frames."""
        if case.name not in self._bare:
            name = f"bare-{len(self._bare)}"
            path = self._rig.directory / f"{name}.spec"
            save(spec, path)
            command = [
                sys.executable,
                "-m",
                "e2e.bench.requests.bare",
                str(path),
                str(self._rig.directory),
            ]
            program = self._rig.program(name, command)
            program.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            program.launch()
            program.wait_until(lambda: program.said().endswith("\n"))
            self._prefer(program)
            self._bare[case.name] = BareServer(program, int(program.said()), path)
        return self._bare[case.name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="on a busy machine, as root: a processor each for server and load, before all else",
    )
    parser.add_argument("--no-store", action="store_true", help=f"leave {STORE.name} alone")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.name]
    if not cases or options.rounds < 1:
        parser.error(f"no case is named like {options.only!r}, or no rounds")
    if options.realtime and (os.cpu_count() or 1) <= LOAD_CPU:
        parser.error("--realtime needs two processors")
    found = conditions() | {"realtime": options.realtime}
    with bench_rig("bench") as rig:
        bench = Bench(rig, cases, realtime=options.realtime)
        for number in range(options.rounds):
            bench.round()
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        clients = bench.librdkafka() if not options.only else []
        loaded_kib = bench.now_kib
    print_conditions(found)
    rows = [*bench.rows, *clients]
    print(table(rows))
    print(memory(bench.idle_kib, loaded_kib))
    if not options.no_store and len(cases) == len(CASES):
        figures = {row.case.name: as_json(row) for row in rows}
        memory_kib = {"idle": bench.idle_kib, "after": loaded_kib}
        store(STORE, source_key(*SOURCES), {**found, "rss_kib": memory_kib, "cases": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
