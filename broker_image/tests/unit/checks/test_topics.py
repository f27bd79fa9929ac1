"""Each finding of topics: in a fleet that has it, and not in a healthy one."""

from logfleet.checks import topics

from broker_image.tests.unit.checks.fleets import (
    GIB,
    NOW_MS,
    fleet,
    found,
    partition,
    remedies,
    topic,
)

DAY_MS = 86_400_000


def test_a_topic_that_nobody_writes_is_found() -> None:
    old = topic("old", *(partition(each, newest_ms=NOW_MS - 41 * DAY_MS) for each in range(3)))
    assert found(topics.unused, fleet(old)) == [("old", "no record for 41 days")]
    assert remedies(topics.unused, fleet(old)) == ["logfleet topic delete old"]


def test_a_topic_without_records_is_found() -> None:
    empty = topic("empty", partition(0, begin=0, end=0, newest_ms=-1))
    assert found(topics.unused, fleet(empty)) == [("empty", "no records")]


def test_a_topic_is_in_use_if_one_partition_is_or_may_be() -> None:
    written = topic("t", partition(0, newest_ms=-1), partition(1))
    unknown = topic("u", partition(0, newest_ms=-1), partition(1, newest_ms=None))
    internal = topic("i", partition(0, newest_ms=-1), internal=True)
    assert found(topics.unused, fleet(written, unknown, internal, topic("none"))) == []


def test_very_many_partitions_are_found_beside_topics_with_few() -> None:
    wide = topic("wide", *(partition(each) for each in range(60)))
    assert found(topics.many_partitions, fleet(topic(), topic("other"), wide)) == [
        ("wide", "60 partitions, 3 is usual here")
    ]
    assert found(topics.many_partitions, fleet(wide)) == [], "it is the usual"
    internal = topic("i", internal=True)
    assert found(topics.many_partitions, fleet(internal)) == []


def test_a_partition_with_most_of_the_bytes_is_found() -> None:
    sizes = [GIB // 10, 8 * GIB, GIB // 10]
    skewed = topic("t", *(partition(at, size=size) for at, size in enumerate(sizes)))
    assert found(topics.uneven_partitions, fleet(skewed)) == [
        ("t", "98% of its bytes are in partition 1")
    ]


def test_small_few_and_unknown_partitions_are_not_uneven() -> None:
    small = topic("s", *(partition(at, size=size) for at, size in enumerate([1, 1_000_000, 1])))
    few = topic("f", partition(0, size=8 * GIB), partition(1, size=1))
    unknown = topic("u", *(partition(at, size=None if at else 8 * GIB) for at in range(3)))
    assert found(topics.uneven_partitions, fleet(small, few, unknown)) == []
