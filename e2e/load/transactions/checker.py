"""Whether transactions held, by what producers were answered and what readers got (pure).

A transaction is committed if a client was answered so, aborted if its producer has given it up, and
unknown otherwise: then all of it is visible, or nothing. The words are those of Jepsen's Kafka
workload: lost, aborted read, torn, duplicated, reordered.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

NS = 1_000_000_000
FIELDS = 6


class Outcome(StrEnum):
    """What a producer knows of the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction(NamedTuple):
    """One transaction as its producer reports it.

    number: grows with each transaction of the producer. size: its number of records. ended_s: on the
    machine's monotonic clock. took_s: from its first call to the answer about its end.
    """

    producer: str
    number: int
    outcome: Outcome
    size: int
    ended_s: float = 0.0
    took_s: float = 0.0


class Value(NamedTuple):
    """What a record says of itself. place: in its transaction, from 0 to size - 1."""

    producer: str
    number: int
    place: int
    size: int

    def __str__(self) -> str:
        return ".".join(map(str, self))


Logs = Mapping[int, Mapping[int, str]]
"""Values by offset, by partition."""
Reading = Mapping[int, Sequence[tuple[int, str]]]
"""Offsets and values of each partition, as a reader got them."""


class Verdict(NamedTuple):
    """What was wrong, a sentence for each case.

    lost: committed, and no record of it is visible. torn: some of its records are visible, others
    are not. aborted_read: aborted, and visible. duplicated: visible at two offsets. reordered: a
    later record of a producer before an earlier one of the same partition. misread: a reader of
    committed records got what is not in the log, or went past what is. miscopied: a copy and the
    offsets that were committed with it differ. hanging: open, or undecided, in the end.
    """

    lost: Sequence[str] = ()
    torn: Sequence[str] = ()
    aborted_read: Sequence[str] = ()
    duplicated: Sequence[str] = ()
    reordered: Sequence[str] = ()
    misread: Sequence[str] = ()
    miscopied: Sequence[str] = ()
    hanging: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        return not any(self)


def value_of(text: str) -> Value:
    """Read a record's value. Raises ValueError for what is none."""
    producer, number, place, size = text.rsplit(".", 3)
    return Value(producer, int(number), int(place), int(size))


def report_line(each: Transaction) -> str:
    """The line that a producer prints about a transaction; times are nanoseconds."""
    ended_ns, took_ns = round(each.ended_s * NS), round(each.took_s * NS)
    return f"{each.producer} {each.number} {each.outcome} {each.size} {ended_ns} {took_ns}"


def transactions_of(text: str) -> list[Transaction]:
    """The transactions that a producer's output reports.

    Other lines are ignored, and so is a last line that is being written.
    """
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        fields = line.split()
        if len(fields) != FIELDS or fields[2] not in frozenset(Outcome):
            continue
        producer, number, outcome, size, ended_ns, took_ns = fields
        found.append(
            Transaction(
                producer,
                int(number),
                Outcome(outcome),
                int(size),
                int(ended_ns) / NS,
                int(took_ns) / NS,
            )
        )
    return found


def judge(transactions: Iterable[Transaction], logs: Logs) -> Verdict:
    """Compare what producers were answered with the committed records of the whole topic.

    A transaction that no producer has reported, as of one that was killed, sizes as unknown.
    """
    seen: dict[tuple[str, int], dict[int, str]] = {}
    sizes: dict[tuple[str, int], int] = {}
    duplicated, reordered = _walk(logs, seen, sizes)
    lost, torn, aborted_read = [], [], []
    outcomes = {}
    for each in transactions:
        key = each.producer, each.number
        outcomes[key] = each.outcome
        if each.outcome is Outcome.COMMITTED:
            sizes[key] = each.size
            if each.size and key not in seen:
                lost.append(f"{each.producer}.{each.number} of {each.size} records")
    for key, places in seen.items():
        outcome = outcomes.get(key, Outcome.UNKNOWN)
        name = f"{key[0]}.{key[1]}"
        if outcome is Outcome.ABORTED:
            aborted_read.append(f"{name} at {', '.join(places.values())}")
        elif missing := sorted(set(range(sizes[key])) - places.keys()):
            torn.append(f"{name} ({outcome}) at {', '.join(places.values())} without {missing}")
    return Verdict(lost, torn, aborted_read, duplicated, reordered)


def _walk(
    logs: Logs, seen: dict[tuple[str, int], dict[int, str]], sizes: dict[tuple[str, int], int]
) -> tuple[list[str], list[str]]:
    """Fill the places of each transaction's records; return what is duplicated or reordered."""
    duplicated, reordered = [], []
    for partition, log in sorted(logs.items()):
        last: dict[str, Value] = {}
        for offset, text in sorted(log.items()):
            value, at = value_of(text), f"{partition}@{offset}"
            key = value.producer, value.number
            places = seen.setdefault(key, {})
            sizes[key] = value.size
            if value.place in places:
                duplicated.append(f"{value} at {places[value.place]} and {at}")
                continue
            places[value.place] = at
            before = last.get(value.producer)
            if before is not None and value < before:
                reordered.append(f"{value} at {at} after {before}")
            last[value.producer] = value
    return duplicated, reordered


def misreadings(reading: Reading, logs: Logs) -> list[str]:
    """Where a reader that read while faults happened differs from the logs in the end.

    It has to get each committed record of a partition once and in order, from the first that it got
    to the last.
    """
    wrong = []
    for partition, rows in sorted(reading.items()):
        log = logs.get(partition, {})
        last = -1
        for offset, value in rows:
            if log.get(offset) != value:
                wrong.append(f"{value} was read at {partition}@{offset}, found {log.get(offset)}")
            if offset <= last:
                wrong.append(f"{value} was read at {partition}@{offset} after offset {last}")
            last = max(last, offset)
        read = {offset for offset, _ in rows}
        first = min(read, default=0)
        wrong += [
            f"{value} at {partition}@{offset} was passed"
            for offset, value in sorted(log.items())
            if first <= offset <= last and offset not in read
        ]
    return wrong


def miscopies(source: Logs, copy: Logs, committed: Mapping[int, int]) -> list[str]:
    """Where a copy is not what the source has below the committed offsets of the copier's group.

    Each partition is copied into the one of the same number; an offset is that of the next record.
    """
    wrong = []
    for partition in sorted(source.keys() | copy.keys()):
        next_offset = committed.get(partition, 0)
        rows = sorted(source.get(partition, {}).items())
        wanted = [value for offset, value in rows if offset < next_offset]
        found = [value for _, value in sorted(copy.get(partition, {}).items())]
        counted = Counter(found)
        of = f"in partition {partition}"
        strange = [
            *(f"{value} {of} is not copied" for value in wanted if value not in counted),
            *(f"{value} {of} is there {n} times" for value, n in counted.items() if n > 1),
            *(
                f"{value} {of} is copied, the committed offset is {next_offset}"
                for value in counted.keys() - set(wanted)
            ),
        ]
        if not strange and found != wanted:
            at = next(n for n, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
            strange = [f"{found[at]} {of} is copied before {wanted[at]}"]
        wrong += strange
    return wrong
