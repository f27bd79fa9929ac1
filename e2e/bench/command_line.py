"""`make bench-cli`: processor time of `logfleet produce` and `consume` beside kcat's, in turns on one broker.

Each round writes 500,000 lines of about 35 bytes to topics of three partitions and reads one of
them back, with either program first as often. What both read is compared. Processor time counts
the start of the program, so 0.2 s of ours is Python's. Prints a table with the load of the machine
and stores it in e2e/results/command-line.json; processor time holds on a busy machine too.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from e2e.bench.conditions import bench_rig, conditions, load_average
from e2e.bench.rounds import rotated
from e2e.harness.clients import kcat
from e2e.harness.results import RESULTS, source_key, store

STORE: Final = RESULTS / "command-line.json"
SOURCES: Final = ("broker_image/src", "e2e/bench/command_line.py")
LINES: Final = 500_000
ROUNDS: Final = 5
PARTITIONS: Final = 3
SIDES: Final = ("logfleet", "kcat")
GOAL: Final = 3.0
"""At most so many times kcat's processor time."""
LOGFLEET: Final = (sys.executable, "-m", "logfleet")


class Cost(NamedTuple):
    """Seconds of the processor, user and system, and on the wall."""

    cpu_s: float
    wall_s: float


def cost_of(command: Sequence[str], given: Path | None = None, written: Path | None = None) -> Cost:
    """Run a program to its end. given, written: its standard input and output.

    Raises CalledProcessError.
    """
    nothing = Path(os.devnull)
    with (given or nothing).open("rb") as stdin, (written or nothing).open("wb") as stdout:
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began)


def write_lines(path: Path, count: int) -> None:
    """Lines of 20 to 48 letters, the same each time."""
    draw = random.Random(35)
    with path.open("w") as file:
        for _ in range(count):
            file.write("".join(draw.choices("abcdefghij", k=draw.randint(20, 48))) + "\n")


def commands(bootstrap: str, topic: str) -> dict[str, dict[str, list[str]]]:
    """Row -> side -> command."""
    at = ["-b", bootstrap]
    return {
        "produce": {
            "logfleet": [*LOGFLEET, "produce", topic, *at],
            "kcat": [kcat(), *at, "-P", "-t", topic],
        },
        "consume": {
            "logfleet": [*LOGFLEET, "consume", topic, *at, "--from-beginning", "--exit-at-end"],
            "kcat": [kcat(), *at, "-C", "-t", topic, "-o", "beginning", "-e", "-q"],
        },
    }


def sorted_lines(path: Path) -> list[bytes]:
    return sorted(path.read_bytes().splitlines())


def run(rounds: int, count: int) -> dict[str, dict[str, list[Cost]]]:
    """Row -> side -> the costs of the rounds. Raises AssertionError if a program loses lines."""
    found: dict[str, dict[str, list[Cost]]] = {
        row: {side: [] for side in SIDES} for row in ("produce", "consume")
    }
    with bench_rig("command-line") as rig:
        broker = rig.broker({"num.partitions": str(PARTITIONS)})
        lines = rig.directory / "lines"
        write_lines(lines, count)
        expected = sorted_lines(lines)
        for number in range(rounds):
            for side in rotated(SIDES, number):
                topic = f"{side}-{number}"
                create = [*LOGFLEET, "topic", "create", topic, "-b", broker.bootstrap]
                cost_of([*create, "--partitions", str(PARTITIONS)])
                produce = commands(broker.bootstrap, topic)["produce"][side]
                found["produce"][side].append(cost_of(produce, given=lines))
            written = rig.directory / "written"
            for side in rotated(SIDES, number):
                topic = f"{SIDES[number % 2]}-{number}"
                consume = commands(broker.bootstrap, topic)["consume"][side]
                found["consume"][side].append(cost_of(consume, written=written))
                assert sorted_lines(written) == expected, f"{side} lost or changed lines"
            print(f"round {number + 1} of {rounds}, load {load_average()[0]}", file=sys.stderr)
    return found


def figures(costs: dict[str, list[Cost]]) -> dict[str, float]:
    """What is kept of a row: medians, and the ratio of the processor times."""
    cpu = {side: median(each.cpu_s for each in costs[side]) for side in SIDES}
    wall = {side: median(each.wall_s for each in costs[side]) for side in SIDES}
    return {
        **{f"{side}_cpu_s": round(value, 2) for side, value in cpu.items()},
        **{f"{side}_wall_s": round(value, 2) for side, value in wall.items()},
        "ratio": round(cpu["logfleet"] / cpu["kcat"], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-cli", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--lines", type=int, default=LINES)
    asked = parser.parse_args()
    began = conditions()
    rows = {row: figures(costs) for row, costs in run(asked.rounds, asked.lines).items()}
    print(f"{'':<10}{'logfleet CPU':>14}{'kcat CPU':>10}{'ratio':>8}{'wall':>8}{'wall':>8}")
    for row, found in rows.items():
        print(
            f"{row:<10}{found['logfleet_cpu_s']:>12.2f} s{found['kcat_cpu_s']:>8.2f} s"
            f"{found['ratio']:>8.2f}{found['logfleet_wall_s']:>6.1f} s{found['kcat_wall_s']:>6.1f} s"
        )
    print(f"load {began['load_average']} before, {load_average()} after")
    if asked.lines == LINES:
        entry = {**rows, "rounds": asked.rounds, "goal": GOAL, "conditions": began}
        store(STORE, source_key(*SOURCES), entry)
    return int(any(found["ratio"] > GOAL for found in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
