"""What was acknowledged, what the log holds in the end, and for how long nobody was served (pure).

The words are those of Jepsen's Kafka workload: lost, duplicated, reordered.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NS = 1_000_000_000


class Acknowledged(NamedTuple):
    """value: `PRODUCER.N`. at_s: on the machine's monotonic clock. took_s: from the send to the answer; None if the producer does not tell."""

    value: str
    partition: int
    offset: int
    at_s: float
    took_s: float | None = None


class History(NamedTuple):
    """What one producer was told."""

    acknowledged: list[Acknowledged]
    failed: list[str]


class Fault(NamedTuple):
    """What was done to whom from `from_s` on; the next one begins at `to_s`. partitions: those that the victim led."""

    kind: str
    victim: str
    from_s: float
    to_s: float
    partitions: frozenset[int]


class Gap(NamedTuple):
    fault: Fault
    partition: int
    seconds: float


class Verdict(NamedTuple):
    lost: list[str]
    duplicated: list[str]
    reordered: list[str]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered)


def _whole_lines(text: str) -> list[str]:
    """Without one that is being written."""
    return text[: text.rfind("\n") + 1].splitlines()


def read_history(kind: str, text: str) -> History:
    """The lines of `e2e.load.producers`."""
    history = History([], [])
    for line in _whole_lines(text):
        fields = line.split(maxsplit=3)
        if len(fields) < 3 or not fields[0].isdecimal():
            continue  # what the libraries say
        number, partition = fields[:2]
        if partition == "failed":
            history.failed.append(f"{kind}.{number}: {line}")
        else:
            at_s, took_s = (int(each) / NS for each in fields[3].split())
            value = f"{kind}.{number}"
            history.acknowledged.append(
                Acknowledged(value, int(partition), int(fields[2]), at_s, took_s)
            )
    return history


def read_java_history(text: str, *, wall_to_monotonic_s: float) -> History:
    """What Kafka's VerifiableProducer says. wall_to_monotonic_s: to be added to its wall clock."""
    history = History([], [])
    for line in _whole_lines(text):
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if said["name"] == "producer_send_success":
            at_s = said["timestamp"] / 1000 + wall_to_monotonic_s
            history.acknowledged.append(
                Acknowledged(said["value"], said["partition"], said["offset"], at_s)
            )
        elif said["name"] == "producer_send_error":
            history.failed.append(
                f"{said['value']}: {said.get('exception', '')} {said.get('message', '')}"
            )
    return history


def judge(histories: Iterable[History], logs: dict[int, dict[int, str]]) -> Verdict:
    """logs: value by offset of each partition, read in the end from the beginning.

    lost: acknowledged and not there where it was said to be, or nowhere where that was not said. duplicated: at two offsets. reordered: a later record of a producer before an
    earlier one of the same partition.
    """
    verdict = Verdict([], [], [])
    there = {index: frozenset(log.values()) for index, log in logs.items()}
    for history in histories:
        for each in history.acknowledged:
            found = logs.get(each.partition, {}).get(each.offset)
            if each.offset < 0 and each.value in there.get(each.partition, frozenset()):
                continue
            if found != each.value:
                where = f"{each.value} acknowledged at {each.partition}@{each.offset}"
                verdict.lost.append(f"{where}, found {found}")
    seen: dict[str, tuple[int, int]] = {}
    for partition, log in sorted(logs.items()):
        last: dict[str, int] = {}
        for offset, value in sorted(log.items()):
            if value in seen:
                verdict.duplicated.append(f"{value} at {seen[value]} and {(partition, offset)}")
                continue
            seen[value] = partition, offset
            producer, _, number = value.rpartition(".")
            if int(number) < last.get(producer, -1):
                verdict.reordered.append(f"{value} at {partition}@{offset} after {last[producer]}")
            last[producer] = int(number)
    return verdict


def gaps(history: History, faults: Sequence[Fault]) -> list[Gap]:
    """For each fault and partition the longest time between two answers that reaches into the fault's time, as far as it does not reach into the next one's."""
    found = []
    by_partition: dict[int, list[float]] = {}
    for each in history.acknowledged:
        by_partition.setdefault(each.partition, []).append(each.at_s)
    for partition, times in sorted(by_partition.items()):
        times.sort()
        for fault in faults:
            longest = max(
                (
                    min(later, fault.to_s) - earlier
                    for earlier, later in itertools.pairwise(times)
                    if later > fault.from_s and earlier < fault.to_s
                ),
                default=float("inf"),
            )
            found.append(Gap(fault, partition, longest))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]
