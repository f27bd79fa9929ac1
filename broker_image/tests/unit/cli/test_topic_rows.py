from typing import Any

import pytest
from logfleet.cli.topic_rows import chosen_topics, issues_of, sorted_rows, topic_row
from logfleet.client.figures.topics import TopicFigures
from logfleet.client.metadata import NO_LEADER, PartitionInfo, Topic

ID = bytes(15) + b"\x01"


def topic(name: str, *isrs: tuple[int, ...], internal: bool = False, replicas: int = 3) -> Topic:
    rows = [
        PartitionInfo(index, isr[0] if isr else NO_LEADER, 0, tuple(range(1, replicas + 1)), isr)
        for index, isr in enumerate(isrs)
    ]
    return Topic(name, ID, internal=internal, partitions=tuple(rows))


def test_topics_are_chosen_by_a_shell_pattern_and_internal_ones_only_if_asked_for() -> None:
    found = [topic("orders"), topic("order-lines"), topic("__x", internal=True)]
    assert [each.name for each in chosen_topics(found, None, internal=False)] == [
        "orders",
        "order-lines",
    ]
    assert [each.name for each in chosen_topics(found, "ord*s", internal=True)] == [
        "orders",
        "order-lines",
    ]
    assert chosen_topics(found, "ORDERS", internal=False) == []
    assert [each.name for each in chosen_topics(found, "__*", internal=True)] == ["__x"]


@pytest.mark.parametrize(
    "found, brokers, issues",
    [
        (topic("t", (1, 2, 3)), 3, []),
        (topic("t", (1, 2), (1, 2, 3)), 3, ["1 under-replicated"]),
        (
            topic("t", (), (1,), (1, 2)),
            3,
            ["1 offline", "2 under min.insync.replicas", "3 under-replicated"],
        ),
        (topic("t", (1,), replicas=1), 3, ["one replica"]),
        (topic("t", (1,), replicas=1), 1, []),
    ],
)
def test_issues_are_counted_the_worst_first(found: Topic, brokers: int, issues: list[str]) -> None:
    assert issues_of(found, 2, brokers) == issues


def test_a_row_has_what_programs_want() -> None:
    row = topic_row(topic("t", (1, 2, 3)), TopicFigures(None, 5), 1, brokers=3, cleanup="compact")
    assert row == {
        "name": "t",
        "partitions": 1,
        "replicas": 3,
        "bytes": None,
        "records": 5,
        "cleanup": "compact",
        "issues": [],
        "id": "AAAAAAAAAAAAAAAAAAAAAQ",
    }


@pytest.mark.parametrize(
    "by, order",
    [("name", "abc"), ("bytes", "cab"), ("records", "bac"), ("partitions", "abc"), ("rate", "bca")],
)
def test_numbers_are_sorted_from_the_largest_and_ties_by_name(by: str, order: str) -> None:
    rows: list[dict[str, Any]] = [
        {"name": "c", "bytes": 9, "records": None, "partitions": 1, "rate": 1.0},
        {"name": "b", "bytes": None, "records": 9, "partitions": 1, "rate": 2.0},
        {"name": "a", "bytes": 1, "records": 0, "partitions": 1, "rate": None},
    ]
    assert "".join(row["name"] for row in sorted_rows(rows, by)) == order
