import json

import pytest
from logfleet.telemetry.decisions import (
    AGE_MS_MAX,
    BYTES_MAX,
    COUNT_MAX,
    PER_SECOND_MAX,
    UNWRITTEN_BYTES_MAX,
    Decision,
    Decisions,
    Kind,
    Query,
    parse,
)

NOW_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def decisions(clock: Clock) -> Decisions:
    return Decisions(1, clock)


def told(decisions: Decisions, query: Query | None = None) -> list[dict[str, object]]:
    return [json.loads(line) for line in decisions.select(query or Query())]


def numbers(decisions: Decisions, query: Query | None = None) -> list[object]:
    return [each["number"] for each in told(decisions, query)]


def test_a_decision_is_told_with_its_cause_and_what_changed(decisions: Decisions) -> None:
    facts: dict[str, object] = {"leader_epoch": [4, 5], "isr": [(1, 2), (1,)]}
    decisions.record(Decision(Kind.ELECTION, "broker 2 is fenced", "t", 3, 1, facts))
    decisions.record(Decision(Kind.STALL, "the loop was held up"))
    assert told(decisions) == [
        {
            "time_ms": NOW_MS,
            "by": 1,
            "number": 1,
            "kind": "election",
            "cause": "broker 2 is fenced",
            "topic": "t",
            "partition": 3,
            "broker": 1,
            "facts": {"leader_epoch": [4, 5], "isr": [[1, 2], [1]]},
        },
        {
            "time_ms": NOW_MS,
            "by": 1,
            "number": 2,
            "kind": "stall",
            "cause": "the loop was held up",
        },
    ]


def test_a_question_picks_by_time_topic_partition_broker_and_kind(
    decisions: Decisions, clock: Clock
) -> None:
    decisions.record(Decision(Kind.ELECTION, "c", topic="t", partition=0, broker=1))
    decisions.record(Decision(Kind.ISR_SHRINK, "c", topic="t", partition=1, broker=2))
    clock.ms += 1
    decisions.record(Decision(Kind.ISR_SHRINK, "c", topic="u", partition=0, broker=2))
    decisions.record(Decision(Kind.FENCED, "c", broker=2))
    assert numbers(decisions, Query(since=NOW_MS + 1)) == [3, 4]
    assert numbers(decisions, Query(topic="t")) == [1, 2]
    assert numbers(decisions, Query(topic="t", partition=1)) == [2]
    assert numbers(decisions, Query(broker=2)) == [2, 3, 4]
    assert numbers(decisions, Query(kind=("election", "fenced"))) == [1, 4]


def test_no_more_are_kept_than_the_bounds_allow(decisions: Decisions, clock: Clock) -> None:
    for _ in range(COUNT_MAX + 10):
        clock.ms += 10
        decisions.record(Decision(Kind.ELECTION, "c"))
    assert numbers(decisions) == list(range(11, COUNT_MAX + 11))
    for _ in range(50):
        decisions.record(Decision(Kind.STALL, "x" * (BYTES_MAX // 20)))
    assert sum(map(len, decisions.select(Query()))) <= BYTES_MAX
    assert numbers(decisions)[-1] == COUNT_MAX + 60
    clock.ms += AGE_MS_MAX
    decisions.record(Decision(Kind.STALL, "new"))
    clock.ms += 1
    assert [each["cause"] for each in told(decisions)] == ["new"]


def test_a_storm_of_one_kind_is_counted_into_one_record(decisions: Decisions, clock: Clock) -> None:
    for index in range(PER_SECOND_MAX + 20):
        decisions.record(Decision(Kind.ISR_SHRINK, f"replica {index} is behind"))
    decisions.record(Decision(Kind.FENCED, "another kind is still recorded"))
    assert len(told(decisions)) == PER_SECOND_MAX + 1
    clock.ms += 1000
    last = told(decisions)[-1]
    assert last["facts"] == {"left_out": 20}
    assert last["cause"] == (
        f"20 more within a second are only counted; the last one: replica {PER_SECOND_MAX + 19} is behind"
    )
    decisions.record(Decision(Kind.ISR_SHRINK, "after the storm"))
    assert told(decisions)[-1]["cause"] == "after the storm"
    assert numbers(decisions) == list(range(1, PER_SECOND_MAX + 4))


def test_a_storm_is_counted_in_full_and_decisions_that_name_no_broker_are_not(
    decisions: Decisions,
) -> None:
    for _ in range(PER_SECOND_MAX + 20):
        decisions.record(Decision(Kind.ELECTION, "c", "t", 0, broker=2))
    decisions.record(Decision(Kind.ELECTION, "nobody leads", "t", 0))
    decisions.record(Decision(Kind.UNCLEAN_ELECTION, "c", "t", 0, broker=0))
    assert decisions.count(Kind.ELECTION) == PER_SECOND_MAX + 20
    assert decisions.count(Kind.ELECTION, Kind.UNCLEAN_ELECTION) == PER_SECOND_MAX + 21
    assert decisions.count(Kind.FENCED) == 0


def test_the_next_second_of_a_storm_tells_what_the_last_one_left_out(
    decisions: Decisions, clock: Clock
) -> None:
    for _ in range(PER_SECOND_MAX + 1):
        decisions.record(Decision(Kind.ISR_SHRINK, "c"))
    clock.ms += 1000
    decisions.record(Decision(Kind.ISR_SHRINK, "next"))
    assert [each.get("facts") for each in told(decisions)[-2:]] == [{"left_out": 1}, None]


def test_lines_are_handed_out_once_to_be_written(decisions: Decisions) -> None:
    decisions.record(Decision(Kind.STALL, "a"))
    decisions.record(Decision(Kind.STALL, "b"))
    assert [decision.cause for decision, _ in parse(decisions.take_unwritten())] == ["a", "b"]
    assert decisions.take_unwritten() == b""
    assert len(told(decisions)) == 2


def test_what_nobody_writes_is_dropped_and_counted(decisions: Decisions) -> None:
    for _ in range(20):
        decisions.record(Decision(Kind.STALL, "x" * (UNWRITTEN_BYTES_MAX // 10)))
    assert decisions.dropped == 11
    assert len(parse(decisions.take_unwritten())) == 9


def test_numbers_go_on_after_a_restart(decisions: Decisions, clock: Clock) -> None:
    decisions.record(Decision(Kind.FENCED, "before"))
    written = decisions.take_unwritten()
    again = Decisions(1, clock)
    again.record(Decision(Kind.STALL, "while it started"))
    again.insert_earlier(parse(written))
    again.record(Decision(Kind.UNFENCED, "after"))
    assert [(each["number"], each["cause"]) for each in told(again)] == [
        (1, "before"),
        (2, "while it started"),
        (3, "after"),
    ]
    assert [decision.number for decision, _ in parse(again.take_unwritten())] == [2, 3]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"time_ms":1}', b"\xff\xfe", b"null", b'{"time_ms":"\xff"}']
)
def test_a_damaged_line_is_left_out(decisions: Decisions, damage: bytes) -> None:
    decisions.record(Decision(Kind.STALL, "a"))
    line = decisions.take_unwritten()
    assert parse(line + damage + b"\n" + line) == parse(line) * 2


def test_a_line_of_a_later_version_is_read(decisions: Decisions) -> None:
    line = b'{"time_ms":1,"by":2,"number":3,"kind":"new","cause":"c","field":0}'
    ((decision, kept),) = parse(line)
    assert (decision.kind, kept) == ("new", line + b"\n")


def test_what_is_no_text_and_what_no_json_has_does_not_fail(decisions: Decisions) -> None:
    decisions.record(Decision(Kind.DIRECTORY_FAILED, "/data/\udcff cannot be read"))
    decisions.record(Decision(Kind.DIRECTORY_FAILED, "c", facts={"error": OSError(5, "EIO")}))
    assert [each["facts"] for each in told(decisions)] == [{"error": "[Errno 5] EIO"}]
    assert decisions.dropped == 1
