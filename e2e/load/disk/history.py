"""What clients were told while brokers died under them, and what must therefore be found in the logs. No input or output here.

Each writer numbers its records; it owns its keys in the compacted topic, so what was confirmed last is known for each key.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]
KEYS = 20
"""A writer's keys; it writes them in turn, so that the numbers of one key are so far apart."""
TOMBSTONE_EVERY = 7
"""Every so many records of a key it is a tombstone."""


class Value(NamedTuple):
    """Which record it is."""

    writer: str
    number: int


class Found(NamedTuple):
    """A record in a log. key: of a compacted topic."""

    offset: int
    value: Value
    key: str | None = None


@dataclass
class History:
    """Grows while the load runs; every change is one step of a dictionary, so a copy may be taken at any time.

    acknowledged: partition -> offset -> record, as confirmed to its writer; keys: (writer, key) -> number confirmed last;
    attempted: the same of what was sent; committed: (group, partition) -> offset of the last confirmed commit;
    starts: the largest log start that was told; deleted: the largest offset that DeleteRecords was sent for.
    """

    acknowledged: dict[Partition, dict[int, Value]] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    attempted: dict[tuple[str, str], int] = field(default_factory=dict)
    committed: dict[tuple[str, Partition], int] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)
    deleted: dict[Partition, int] = field(default_factory=dict)
    commits: int = 0
    deletions: int = 0
    failures: list[str] = field(default_factory=list)

    def count(self) -> int:
        """Acknowledged records."""
        return sum(map(len, self.acknowledged.values()))

    def raise_start(self, partition: Partition, offset: int) -> None:
        """The broker told this log start; a lower one than before is a failure."""
        before = self.starts.get(partition, 0)
        if offset < before:
            self.failures.append(f"{partition} began at {before}, now at {offset}")
        self.starts[partition] = max(before, offset)


def key_of(number: int) -> str:
    """The key of the record of this number in the compacted topic."""
    return f"key-{number % KEYS}"


def is_tombstone(number: int) -> bool:
    """Whether a key's record of this number has no value."""
    return number % TOMBSTONE_EVERY == 0


def check_in_order(found: Iterable[Found], start: int) -> list[str]:
    """Faults of a log without compaction: offsets and each writer's numbers are consecutive, from 0 on where nothing was deleted."""
    faults = []
    expected, offset = dict[str, int](), start
    for record in found:
        writer, number = record.value
        if record.offset != offset:
            faults.append(f"offset {record.offset} follows {offset - 1}")
        wanted = expected.get(writer, number if start else 0)
        if number != wanted:
            faults.append(f"{writer} has {number} at {record.offset}, not {wanted}")
        expected[writer] = number + 1
        offset = record.offset + 1
    return faults


def check_acknowledged(
    found: Sequence[Found], acknowledged: Mapping[int, Value], start: int
) -> list[str]:
    """Faults: what was confirmed at an offset from `start` on is not there, or something else is."""
    by_offset = {record.offset: record.value for record in found}
    return [
        f"offset {offset} held {value}, now {by_offset.get(offset)}"
        for offset, value in acknowledged.items()
        if offset >= start and by_offset.get(offset) != value
    ]


def check_latest(
    found: Iterable[Found],
    acknowledged: Mapping[tuple[str, str], int],
    attempted: Mapping[tuple[str, str], int],
) -> list[str]:
    """Faults of a compacted log: a key's numbers ascend, and its last one is not older than the one confirmed last.

    A key may be gone if a tombstone of it, confirmed last or written later, can have been the last.
    """
    faults = []
    last: dict[tuple[str, str], int] = {}
    for record in found:
        assert record.key is not None
        name = (record.value.writer, record.key)
        if record.value.number <= last.get(name, -1):
            faults.append(f"{name} has {record.value.number} after {last[name]}")
        last[name] = record.value.number
    for name, number in acknowledged.items():
        newest = range(number, attempted[name] + 1, KEYS)
        if name in last:
            if last[name] < number:
                faults.append(f"{name} is {last[name]}, but {number} was confirmed")
        elif not any(map(is_tombstone, newest)):
            faults.append(f"{name} is gone, {number} was confirmed")
    return faults


def check_not_less(
    what: str, now: Mapping[Partition, int], before: Mapping[Partition, int]
) -> list[str]:
    """Faults: a number that never goes back has gone back."""
    return [
        f"{what} of {partition} was {offset}, now {now.get(partition)}"
        for partition, offset in before.items()
        if now.get(partition, -1) < offset
    ]
