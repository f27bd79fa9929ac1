"""The states in which one partition is copied."""

import pytest
from logfleet.replication.follower import NextFetch
from logfleet.replication.partition_fetch import (
    NEXT_STATES,
    PAUSE_S_MIN,
    FetchState,
    PartitionFetch,
)
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.replication.fetcher_rig import Log, Replica

S = FetchState
WAYS = {
    S.DUE: ([], "FETCHING WRITING ENDED"),
    S.FETCHING: (
        [S.FETCHING],
        "FETCHING APPENDING ASKING_RANGE TRUNCATING PAUSED FENCED DUE ENDED",
    ),
    S.APPENDING: ([S.FETCHING, S.APPENDING], "DUE WRITING TRUNCATING PAUSED ENDED"),
    S.WRITING: ([S.FETCHING, S.APPENDING, S.WRITING], "DUE PAUSED ENDED"),
    S.ASKING_RANGE: ([S.FETCHING, S.ASKING_RANGE], "TRUNCATING PAUSED DUE ENDED"),
    S.TRUNCATING: ([S.FETCHING, S.TRUNCATING], "DUE APPENDING PAUSED ENDED"),
    S.PAUSED: ([S.FETCHING, S.PAUSED], "DUE PAUSED ENDED"),
    S.FENCED: ([S.FETCHING, S.FENCED], "ENDED"),
    S.ENDED: ([S.ENDED], ""),
}
"""How each state is reached, and what may follow it."""


def fetch_in(state: FetchState) -> PartitionFetch[Replica]:
    fetch = PartitionFetch(Replica(0, Log()))
    for each in WAYS[state][0]:
        fetch.enter(each)
    return fetch


@pytest.mark.parametrize("state", S, ids=lambda each: each.name)
def test_a_state_is_followed_by_those_of_the_table_and_no_others(state):
    allowed = {FetchState[name] for name in WAYS[state][1].split()}
    assert set(NEXT_STATES[state]) == allowed
    for after in S:
        fetch = fetch_in(state)
        if after in allowed:
            fetch.enter(after)
            assert fetch.state is after
        else:
            with pytest.raises(AssertionError, match=f"{state.name} to {after.name}"):
                fetch.enter(after)


def test_what_ended_never_begins_again():
    assert fetch_in(S.ENDED).is_ended
    assert not any(fetch_in(state).is_ended for state in set(S) - {S.ENDED})


def test_a_request_names_the_end_of_the_log_as_it_is_now():
    replica = Replica(4, Log(end=20, epoch=3, start=2))
    fetch = PartitionFetch(replica)
    request = fetch.ask(1000)
    assert fetch.state is S.FETCHING
    assert fetch.asked == NextFetch(20, LeaderEpoch(3), LeaderEpoch(5))
    assert (request.partition, request.current_leader_epoch) == (4, 5)
    assert (request.fetch_offset, request.last_fetched_epoch) == (20, 3)
    assert (request.log_start_offset, request.partition_max_bytes) == (2, 1000)
    replica.log.log_end_offset = 21
    again = fetch.ask(500)
    assert (again.fetch_offset, again.partition_max_bytes) == (21, 500)
    assert again is request


@pytest.mark.parametrize("state", NEXT_STATES[S.FETCHING], ids=lambda each: each.name)
def test_what_was_asked_counts_only_while_it_is_fetched(state):
    fetch = PartitionFetch(Replica(0, Log()))
    fetch.ask(1000)
    fetch.enter(state)
    assert fetch.asked is None


def test_pauses_grow_until_records_are_appended():
    fetch = PartitionFetch(Replica(0, Log()))
    assert [fetch.take_pause(0.15) for _ in range(4)] == [PAUSE_S_MIN, 0.1, 0.15, 0.15]
    fetch.is_ahead = True
    fetch.succeeded()
    assert (fetch.take_pause(0.15), fetch.is_ahead) == (PAUSE_S_MIN, False)
