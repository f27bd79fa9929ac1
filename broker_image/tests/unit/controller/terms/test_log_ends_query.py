"""Whom a query asks, when again, and which reports count."""

from collections.abc import Sequence

import pytest
from logfleet.controller.changes.election_writes import PartitionId
from logfleet.controller.terms.log_ends_query import (
    LOG_ENDS_MS_MAX,
    PAUSE_MS,
    LogEndsQuery,
)
from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import ACTIVE, BrokerValue
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch, LeaderEpoch

T = bytes(16)
ONE, TWO = (T, 0), (T, 1)
A, B = (1, BrokerEpoch(10)), (2, BrokerEpoch(20))
END, LATER = (LeaderEpoch(3), 70), (LeaderEpoch(3), 90)
BEGUN_MS = 1_000


def broker(member: Member) -> Broker:
    return Broker(*member, BrokerValue("i", ()), ACTIVE)


@pytest.fixture
def query() -> LogEndsQuery:
    """Of a partition on both brokers, and of another one on the first."""
    return LogEndsQuery({ONE: [broker(A), broker(B)], TWO: [broker(A)]}, BEGUN_MS)


def asked(query: LogEndsQuery, now_ms: int) -> dict[Member, Sequence[PartitionId]]:
    return {ask.member: ask.partitions for ask in query.asks(now_ms)}


def test_each_broker_is_asked_once_for_all_its_partitions(query) -> None:
    assert asked(query, BEGUN_MS) == {A: (ONE, TWO), B: (ONE,)}
    assert asked(query, BEGUN_MS) == {}, "they are being asked"
    assert query.due_ms == BEGUN_MS + LOG_ENDS_MS_MAX


def test_a_query_is_over_once_all_have_reported(query) -> None:
    query.asks(BEGUN_MS)
    query.reported(A, [(ONE, END), (TWO, END)], BEGUN_MS)
    assert not query.is_over(BEGUN_MS)
    query.reported(B, [(ONE, LATER)], BEGUN_MS)
    assert query.is_over(BEGUN_MS)
    assert query.found == {ONE: {A: END, B: LATER}, TWO: {A: END}}
    assert asked(query, BEGUN_MS + 500) == {}


def test_what_is_missing_is_asked_again_after_a_pause(query) -> None:
    query.asks(BEGUN_MS)
    query.reported(A, [(TWO, END)], BEGUN_MS)
    query.ended(A, BEGUN_MS + 10)
    assert query.due_ms == BEGUN_MS + 10 + PAUSE_MS
    assert asked(query, query.due_ms - 1) == {}
    assert asked(query, query.due_ms) == {A: (ONE,)}


def test_a_broker_that_has_reported_all_is_not_asked_again(query) -> None:
    query.asks(BEGUN_MS)
    query.reported(B, [(ONE, END)], BEGUN_MS)
    query.ended(B, BEGUN_MS)
    assert query.due_ms == BEGUN_MS + LOG_ENDS_MS_MAX


def test_a_query_ends_in_time_whoever_is_silent(query) -> None:
    query.asks(BEGUN_MS)
    query.reported(A, [(ONE, END)], BEGUN_MS + LOG_ENDS_MS_MAX - 1)
    assert not query.is_over(BEGUN_MS + LOG_ENDS_MS_MAX - 1)
    assert query.is_over(BEGUN_MS + LOG_ENDS_MS_MAX)
    query.reported(B, [(ONE, END)], BEGUN_MS + LOG_ENDS_MS_MAX)
    assert query.found == {ONE: {A: END, B: SILENT}, TWO: {A: SILENT}}, "it came too late"
    assert asked(query, BEGUN_MS + LOG_ENDS_MS_MAX) == {}


@pytest.mark.parametrize(
    "member, partition, end",
    [
        ((1, BrokerEpoch(11)), ONE, END),
        ((3, BrokerEpoch(30)), ONE, END),
        (B, TWO, END),
        (B, (T, 9), END),
        (B, ONE, SILENT),
    ],
    ids=["another registration", "another broker", "not its partition", "not asked", "no end"],
)
def test_a_report_counts_for_who_was_asked_and_for_what(query, member, partition, end) -> None:
    query.asks(BEGUN_MS)
    query.reported(member, [(partition, end)], BEGUN_MS)
    assert query.found == {ONE: {A: SILENT, B: SILENT}, TWO: {A: SILENT}}
    assert not query.is_over(BEGUN_MS)


def test_the_first_report_of_a_replica_counts(query) -> None:
    query.reported(A, [(ONE, END)], BEGUN_MS)
    query.reported(A, [(ONE, LATER)], BEGUN_MS)
    assert query.found[ONE][A] == END


def test_a_broker_that_cannot_be_asked_is_silent_and_not_waited_for(query) -> None:
    query.asks(BEGUN_MS)
    query.gave_up(B)
    query.reported(A, [(ONE, END), (TWO, END)], BEGUN_MS)
    assert query.is_over(BEGUN_MS)
    assert query.found[ONE][B] == SILENT
