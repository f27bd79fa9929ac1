"""`make bench-groups`: what 1,000 classic groups of 10,000 members in all cost one broker.

The members are requests over 100 connections (e2e.load.group_crowd). What counts is processor time of the broker's process; times
on the wall and the loop's lag hold for a machine that has nothing else to do.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.conditions import bench_rig, conditions
from e2e.bench.cpu import cpu_time, rss_kib, run_undisturbed
from e2e.harness.processes import Broker
from e2e.harness.results import RESULTS, source_key, store
from e2e.harness.topics import create_topic
from e2e.load.group_crowd import TOPIC, Crowd

SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    "e2e/bench/groups.py",
    "e2e/load/group_crowd.py",
)
STORE = RESULTS / "groups.json"
GROUPS, SIZE, ROUNDS = 1_000, 10, 3
BROKER_CPU = 0
HEARTBEAT_S, COMMIT_S = 3.0, 5.0
"""Defaults of Java's consumer: heartbeat.interval.ms and auto.commit.interval.ms."""
CONFIG = {"group.initial.rebalance.delay.ms": "100"}
LAG = 'logfleet_event_loop_lag_seconds_bucket{le="'


@dataclass(frozen=True)
class Phase:
    """What one kind of work cost. count: how often it was done; lag_ms_max: the loop's lag was never more than this."""

    name: str
    unit: str
    count: int
    seconds: float
    cpu_s: float
    lag_ms_p99: float
    lag_ms_max: float

    @property
    def cost_us(self) -> float:
        return self.cpu_s * 1e6 / self.count

    def row(self) -> str:
        return (
            f"{self.name:<38}{self.count:>8} {self.unit:<12}{self.seconds:>8.2f} s"
            f"{self.cost_us:>10.0f} us{self.lag_ms_p99:>10g} ms{self.lag_ms_max:>10g} ms"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "count": self.count,
            "seconds": round(self.seconds, 3),
            "cpu_us_each": round(self.cost_us, 1),
            "lag_ms_p99": self.lag_ms_p99,
            "lag_ms_max": self.lag_ms_max,
        }


@dataclass
class Report:
    """Runs phases against a broker and keeps what they cost."""

    broker: Broker
    phases: list[Phase] = field(default_factory=list)

    async def measure(self, name: str, unit: str, count: int, work: Awaitable[Any]) -> Any:
        """Do `work` and note its cost as that of `count` units."""
        lag, cpu, began_s = lags(self.broker), cpu_time(self.broker.pid), time.monotonic()
        result = await work
        seconds = time.monotonic() - began_s
        spent = cpu_time(self.broker.pid).since(cpu)
        p99_ms, max_ms = lag_between(lag, lags(self.broker))
        phase = Phase(name, unit, count, seconds, spent.total_ns / 1e9, p99_ms, max_ms)
        self.phases.append(phase)
        print(phase.row(), flush=True)
        return result


def lags(broker: Broker) -> dict[float, int]:
    """How often the loop's lag was at most so many seconds, since the broker's start."""
    lines = [line for line in broker.metrics().splitlines() if line.startswith(LAG)]
    pairs = [line.removeprefix(LAG).split('"} ') for line in lines]
    return {float(bound): int(float(count)) for bound, count in pairs}


def lag_between(before: dict[float, int], after: dict[float, int]) -> tuple[float, float]:
    """Bounds, in ms, that 99 of 100 lags and all of them were under."""
    counts = {bound: after[bound] - before.get(bound, 0) for bound in sorted(after)}
    total = max(counts.values())
    p99 = next(bound for bound, count in counts.items() if count >= 0.99 * total)
    top = next(bound for bound, count in counts.items() if count >= total)
    return p99 * 1000, top * 1000


def within(over_s: float) -> str:
    return f", over {over_s:g} s" if over_s else ", at once"


async def run(
    broker: Broker, groups: int, size: int, *, realtime: bool = False, quick: bool = False
) -> dict[str, Any]:
    """All phases; the figures as JSON. Raises AssertionError when a member was not treated as it should be.

    realtime: the broker has a processor before everything else on the machine. quick: each kind of work once, for a test.
    """
    if realtime:
        run_undisturbed(broker.pid, BROKER_CPU)
    create_topic(broker.bootstrap, TOPIC, size)
    crowd = Crowd("127.0.0.1", broker.port, groups=groups, size=size)
    await crowd.connect()
    report = Report(broker)
    idle_kib = rss_kib(broker.pid)
    print(f"{'':<38}{'':>8} {'':<12}{'wall':>10}{'CPU each':>13}{'lag p99 <=':>13}{'max <=':>13}")
    await report.measure(f"groups of {size} come to be", "groups", groups, crowd.join())
    joined_kib = rss_kib(broker.pid)
    states = await crowd.listed()
    assert list(states.values()) == ["Stable"] * groups, "every group is stable"
    generations = [group.whole for group in crowd.groups]
    await _steadily(report, crowd, quick=quick)
    await report.measure("each group rebalances", "groups", groups, crowd.rebalance())
    assert all(
        group.whole > before for group, before in zip(crowd.groups, generations, strict=True)
    )
    await _after_a_kill(report, crowd, realtime=realtime)
    crowd.close()
    return {
        "groups": groups,
        "members": groups * size,
        "connections": len(crowd.connections),
        "rss_kib": {"idle": idle_kib, "joined": joined_kib},
        "phases": [phase.as_json() for phase in report.phases],
    }


async def _steadily(report: Report, crowd: Crowd, *, quick: bool) -> None:
    """What stable groups do: all members at the same moment, and spread over their interval as if each had its own clock."""
    members, rounds = len(crowd.members), 1 if quick else ROUNDS
    for over_s in (0.0,) if quick else (0.0, HEARTBEAT_S):
        for _ in range(rounds):
            name = f"a heartbeat of each{within(over_s)}"
            lost = await report.measure(name, "heartbeats", members, crowd.beat(over_s))
            assert lost == 0, f"{lost} members were lost"
    for over_s in (0.0,) if quick else (0.0, COMMIT_S):
        for offset in range(rounds):
            name = f"a commit of each{within(over_s)}"
            failed = await report.measure(name, "commits", members, crowd.commit(offset, over_s))
            assert failed == 0, f"{failed} commits failed"


async def _after_a_kill(report: Report, crowd: Crowd, *, realtime: bool) -> None:
    """All members go on in their generation with a coordinator that has to load them."""
    broker, groups = report.broker, len(crowd.groups)
    broker.kill()
    began_s = time.monotonic()
    broker.start()
    if realtime:
        run_undisturbed(broker.pid, BROKER_CPU)
    await crowd.connect()
    states = await crowd.listed()
    print(f"started after SIGKILL, all groups loaded and told: {time.monotonic() - began_s:.2f} s")
    assert list(states.values()) == ["Stable"] * groups, "no group was forgotten"
    count = len(crowd.members)
    lost = await report.measure("a heartbeat of each, then", "heartbeats", count, crowd.beat())
    assert lost == 0, f"{lost} members were lost with the coordinator"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench-groups")
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--size", type=int, default=SIZE, help="members of each group")
    parser.add_argument("--realtime", action="store_true", help="for a machine that is busy")
    options = parser.parse_args(arguments)
    with bench_rig("groups") as rig:
        running = run(rig.broker(CONFIG), options.groups, options.size, realtime=options.realtime)
        entry = asyncio.run(running)
    store(STORE, source_key(*SOURCES), {**entry, "conditions": conditions()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
