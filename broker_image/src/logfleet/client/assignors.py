"""How the leader of a classic group divides partitions among members."""

from collections.abc import Mapping, Sequence

from logfleet.wire.consumer_protocol import Assignment

RANGE = "range"


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, Assignment]:
    """Member -> partitions by topic: ranges of each topic, one more for the first (RangeAssignor).

    subscriptions: member -> topics, in the order in which members get partitions. partitions: topic
    -> their number; topics that are missing are left out.
    """
    assigned: dict[str, Assignment] = {member: {} for member in subscriptions}
    for topic, count in sorted(partitions.items()):
        members = [member for member, topics in subscriptions.items() if topic in topics]
        if not members:
            continue
        share, rest = divmod(count, len(members))
        start = 0
        for number, member in enumerate(members):
            end = start + share + (number < rest)
            if end > start:
                assigned[member][topic] = list(range(start, end))
            start = end
    return assigned
