"""Checks of topics: which are not used, and which are cut badly. PURE."""

from collections.abc import Iterator
from statistics import median
from typing import Final

from logfleet.checks.finding import Check, Found, Severity, check, counted
from logfleet.checks.snapshot import Part, Snapshot

DAY_MS: Final = 86_400_000
UNUSED_DAYS: Final = 30
MANY_TIMES: Final = 10
"""So many times the median is conspicuous."""
MANY_PARTITIONS: Final = 50
LARGE_BYTES: Final = 1 << 30
"""A smaller partition does no harm, however uneven the topic is."""


@check("LF601", Severity.HINT, Part.TIMES)
def unused(fleet: Snapshot) -> Iterator[Found]:
    """Topics that nobody writes.

    The topic has no record, or none of the last 30 days by their timestamps.

    If nobody needs it, delete it: partitions cost memory, file descriptors and time at failovers.
    """
    for topic in fleet.users_topics:
        newest = [each.newest_ms for each in topic.partitions]
        known = [each for each in newest if each is not None]
        if not known or len(known) < len(newest):
            continue
        days = (fleet.now_ms - max(known)) // DAY_MS
        if days >= UNUSED_DAYS:
            is_empty = all(each.begin == each.end for each in topic.partitions)
            sentence = "no records" if is_empty else f"no record for {counted(days, 'day')}"
            yield Found(topic.name, sentence, f"logfleet topic delete {topic.name}")


@check("LF602", Severity.HINT)
def many_partitions(fleet: Snapshot) -> Iterator[Found]:
    """Topics with very many partitions.

    The topic has 50 partitions or more, ten times what topics of this fleet usually have.

    Partitions are for parallel readers. What one broker can take is not raised by more of them.
    """
    counts = [len(topic.partitions) for topic in fleet.users_topics]
    usual = median(counts) if counts else 0
    for topic in fleet.users_topics:
        count = len(topic.partitions)
        if count >= max(MANY_PARTITIONS, MANY_TIMES * usual):
            sentence = f"{counted(count, 'partition')}, {usual:.0f} is usual here"
            yield Found(topic.name, sentence, f"logfleet topic describe {topic.name}")


@check("LF603", Severity.HINT, Part.DISKS)
def uneven_partitions(fleet: Snapshot) -> Iterator[Found]:
    """Uneven partitions.

    One partition has more than 1 GiB and ten times the bytes of the topic's median. A key has most
    of the records, or producers name the partition. Its leader and its consumer do most of the
    work.

    Choose a key that spreads records better.
    """
    for topic in fleet.users_topics:
        sizes = [each.size for each in topic.partitions if each.size is not None]
        if len(sizes) < 3 or len(sizes) < len(topic.partitions):
            continue
        largest = max(topic.partitions, key=lambda each: each.size or 0)
        if max(sizes) >= max(LARGE_BYTES, MANY_TIMES * median(sizes)):
            share = f"{max(sizes) / sum(sizes):.0%} of its bytes are in partition {largest.index}"
            yield Found(topic.name, share, f"logfleet topic describe {topic.name}")


CHECKS: Final[tuple[Check, ...]] = (unused, many_partitions, uneven_partitions)
