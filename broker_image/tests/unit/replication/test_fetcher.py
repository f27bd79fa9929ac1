"""What a fetcher decides on each event: the next state of the partition, and the effect."""

import pytest
from logfleet.replication import fetcher as fetcher_module
from logfleet.replication.fetcher import (
    AHEAD_S_MAX,
    RECONNECT_S_MAX,
    RECONNECT_S_MIN,
    THROTTLED_MS_MAX,
    Apply,
    AskRange,
    ReportAhead,
    Restart,
    Truncate,
    WhenWritten,
)
from logfleet.replication.partition_fetch import PAUSE_S_MIN, FetchState
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.replication.fetcher_rig import BACKOFF_S, Replica, Rig, row

S = FetchState
RECORDS = b"records"


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- rows


@pytest.mark.parametrize(
    "fields, state, effect, offset",
    [
        ({"records": RECORDS}, S.APPENDING, Apply, None),
        ({"high_watermark": 10}, S.FETCHING, Apply, None),
        ({"diverging": (3, 15)}, S.TRUNCATING, Truncate, 15),
        ({"diverging": (3, 15), "log_start_offset": 18}, S.TRUNCATING, Restart, 18),
        ({"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}, S.ASKING_RANGE, AskRange, None),
        ({"error_code": ErrorCode.FENCED_LEADER_EPOCH}, S.FENCED, None, None),
        ({"error_code": ErrorCode.STALE_BROKER_EPOCH}, S.FENCED, None, None),
        ({"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}, S.PAUSED, None, None),
        ({"error_code": ErrorCode.KAFKA_STORAGE_ERROR}, S.PAUSED, None, None),
    ],
)
def test_a_row_leads_to_one_state_and_one_effect(rig, fields, state, effect, offset):
    fetch = rig.fetching(end=20)
    found = rig.received(fetch, **fields)
    assert fetch.state is state
    if effect is None:
        assert found is None
    else:
        assert type(found) is effect
        assert found.fetch is fetch
        assert getattr(found, "offset", None) == offset
    assert rig.in_session == ({0} if state in {S.APPENDING, S.FETCHING} else set())


def test_a_row_about_another_log_end_changes_nothing_and_the_partition_is_named_again(rig):
    fetch = rig.fetching(end=20)
    fetch.replica.log.log_end_offset = 19
    assert rig.received(fetch, records=RECORDS) is None
    assert fetch.state is S.DUE
    assert rig.request() == [0]


@pytest.mark.parametrize(
    "way", ["never named", "followed no more", "of a former leader epoch", "another partition"]
)
def test_a_row_that_nobody_asked_for_changes_nothing(rig, way):
    fetch = rig.assigned(end=20)
    if way != "never named":
        rig.request()
    key = fetch.key
    if way == "followed no more":
        rig.fetcher.removed(fetch.replica)
    if way == "of a former leader epoch":
        rig.fetcher.assigned(Replica(0, fetch.replica.log, leader_epoch=6))
    if way == "another partition":
        key = (b"other-----------", 0)
    states = {each: copied.state for each, copied in rig.fetcher.partitions.items()}
    assert rig.fetcher.received(key, row(diverging=(3, 15)), rig.now_s) is None
    assert {each: copied.state for each, copied in rig.fetcher.partitions.items()} == states


# --- outcomes of appends


def appending(rig, **log):
    fetch = rig.fetching(**log)
    rig.received(fetch, records=RECORDS)
    return fetch


def test_what_was_appended_is_followed_by_a_fetch_of_what_comes_next(rig):
    fetch = appending(rig, end=20)
    fetch.replica.log.log_end_offset = fetch.replica.log.written_end_offset = 25
    assert rig.fetcher.appended(fetch, rig.now_s) is None
    assert fetch.state is S.DUE
    assert rig.request() == [0]
    assert fetch.asked.offset == 25


def test_what_a_disk_holds_up_is_fetched_again_once_it_is_written(rig):
    fetch = appending(rig, end=20)
    fetch.replica.log.log_end_offset = 25
    assert rig.fetcher.appended(fetch, rig.now_s) == WhenWritten(fetch)
    assert (fetch.state, rig.in_session) == (S.WRITING, set())
    rig.fetcher.written(fetch, rig.now_s)
    assert fetch.state is S.DUE
    assert rig.request() == [0]


def test_what_a_disk_holds_up_is_not_reported_while_the_replica_is_throttled_either(rig):
    fetch = appending(rig, end=20)
    fetch.replica.log.log_end_offset = 25
    fetch.replica.lag, rig.throttle_ms = 5, 300
    assert rig.fetcher.appended(fetch, rig.now_s) == WhenWritten(fetch)
    assert rig.fetcher.resume(rig.now_s + 1) is None
    rig.fetcher.written(fetch, rig.now_s)
    assert fetch.state is S.PAUSED


def test_what_a_disk_holds_up_is_not_reported_to_a_new_leader(rig):
    """The leader would acknowledge records that only this broker's memory has."""
    fetch = appending(rig, end=20)
    fetch.replica.log.log_end_offset = 25
    rig.fetcher.appended(fetch, rig.now_s)
    again = Replica(0, fetch.replica.log, leader_epoch=6)
    effect = rig.fetcher.assigned(again)
    assert effect == WhenWritten(rig.fetcher.partitions[fetch.key])
    assert rig.request() == []
    again.log.written_end_offset = 25
    rig.fetcher.written(effect.fetch, rig.now_s)
    assert rig.request() == [0]


def test_a_throttled_replica_that_lags_pauses_until_its_rate_allows_more(rig):
    fetch = appending(rig, end=20)
    fetch.replica.lag, rig.throttle_ms = 5, 300
    assert rig.fetcher.appended(fetch, rig.now_s) is None
    assert (fetch.state, rig.in_session) == (S.PAUSED, set())
    assert rig.fetcher.resume(rig.now_s) == pytest.approx(0.3)
    rig.now_s += 0.3
    rig.throttle_ms = 100_000
    assert rig.fetcher.resume(rig.now_s) == pytest.approx(THROTTLED_MS_MAX / 1000)
    rig.now_s += THROTTLED_MS_MAX / 1000
    rig.throttle_ms = 0
    assert rig.fetcher.resume(rig.now_s) is None
    assert rig.request() == [0]


@pytest.mark.parametrize("lag", [-1, 0])
def test_a_replica_that_does_not_lag_is_never_throttled(rig, lag):
    fetch = appending(rig, end=20)
    fetch.replica.lag, rig.throttle_ms = lag, 300
    rig.fetcher.appended(fetch, rig.now_s)
    assert fetch.state is S.DUE


def test_records_that_the_log_refuses_are_fetched_again_after_growing_pauses(rig):
    fetch = appending(rig, end=20)
    for pause_s in (PAUSE_S_MIN, 0.1, BACKOFF_S, BACKOFF_S):
        rig.fetcher.not_appended(fetch, rig.now_s)
        assert fetch.state is S.PAUSED
        assert rig.fetcher.resume(rig.now_s) == pytest.approx(pause_s)
        rig.now_s += pause_s
        assert rig.fetcher.resume(rig.now_s) is None
        assert rig.request() == [0]
        rig.received(fetch, records=RECORDS)
    rig.fetcher.appended(fetch, rig.now_s)
    rig.request()
    rig.received(fetch, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.fetcher.resume(rig.now_s) == pytest.approx(PAUSE_S_MIN)


def test_a_partition_whose_log_directory_failed_is_not_paused(rig):
    fetch = appending(rig, end=20)
    rig.fetcher.removed(fetch.replica)
    rig.fetcher.not_appended(fetch, rig.now_s)
    assert fetch.is_ended
    assert rig.fetcher.resume(rig.now_s) is None


@pytest.mark.parametrize("first_epoch", [None, 5])
def test_a_batch_that_is_cut_off_pauses_the_partition(rig, first_epoch):
    fetch = appending(rig)
    assert rig.fetcher.nothing_appended(fetch, first_epoch, rig.now_s) is None
    assert fetch.state is S.PAUSED
    assert rig.fetcher.resume(rig.now_s) == pytest.approx(PAUSE_S_MIN)


def test_records_above_the_leaders_epoch_pause_it_for_long_and_are_reported_once(rig, monkeypatch):
    monkeypatch.setattr(fetcher_module, "AHEAD_S_MAX", 0.4)
    fetch, epoch = appending(rig), LeaderEpoch(9)
    reports = []
    for pause_s in (PAUSE_S_MIN, 0.1, 0.2, 0.4, 0.4):
        reports.append(rig.fetcher.nothing_appended(fetch, epoch, rig.now_s))
        assert rig.fetcher.resume(rig.now_s) == pytest.approx(pause_s)
        rig.now_s += pause_s
        rig.fetcher.resume(rig.now_s)
        rig.request()
        rig.received(fetch, records=RECORDS)
    assert reports == [ReportAhead(fetch, epoch), None, None, None, None]
    rig.fetcher.appended(fetch, rig.now_s)
    rig.request()
    rig.received(fetch, records=RECORDS)
    assert rig.fetcher.nothing_appended(fetch, epoch, rig.now_s) == ReportAhead(fetch, epoch)
    assert AHEAD_S_MAX > 1


@pytest.mark.parametrize(
    "log, leader_start, batch, is_restarted",
    [
        ({"end": 5, "start": 5}, 5, (4, 6), True),  # empty: the leader starts within the batch
        ({"end": 5}, 5, (4, 6), True),  # all of it is below the leader's start
        ({"end": 5}, 4, (4, 6), False),  # the leader has what comes next: something is wrong
        ({"end": 5, "start": 5}, 5, (2, 4), False),  # all of the batch is below the end
        ({"end": 5, "start": 5}, 5, (5, 6), False),  # it does not begin below the end
    ],
)
def test_a_log_starts_within_a_batch_only_where_its_leaders_does(
    rig, log, leader_start, batch, is_restarted
):
    fetch = appending(rig, **log)
    found = row(records=RECORDS, log_start_offset=leader_start)
    effect = rig.fetcher.overlapped(fetch, found, *batch)
    if not is_restarted:
        assert (effect, fetch.state) == (None, S.APPENDING)
        return
    assert effect == Restart(fetch, batch[0])
    assert (fetch.state, rig.in_session) == (S.TRUNCATING, set())
    # the same row follows: asked again, the leader would answer that its log starts later
    assert rig.fetcher.truncated(fetch, rig.now_s, is_done=True) == Apply(fetch, found)
    assert fetch.state is S.APPENDING
    rig.fetcher.appended(fetch, rig.now_s)
    assert rig.request() == [0]


def test_a_log_start_that_moved_is_reported_by_the_next_request(rig):
    fetch = rig.fetching(end=20)
    rig.received(fetch, high_watermark=20, log_start_offset=5)
    fetch.replica.log.log_start_offset = 5
    assert rig.request() == []
    rig.fetcher.log_start_moved(fetch)
    assert fetch.state is S.FETCHING
    assert rig.request() == [0]
    assert fetch.request.log_start_offset == 5


@pytest.mark.parametrize("state", [S.WRITING, S.PAUSED])
def test_a_log_start_that_moved_does_not_end_a_wait(rig, state):
    fetch = appending(rig, end=20)
    if state is S.WRITING:
        fetch.replica.log.log_end_offset = 25
        rig.fetcher.appended(fetch, rig.now_s)
    else:
        rig.fetcher.not_appended(fetch, rig.now_s)
    rig.fetcher.log_start_moved(fetch)
    assert (fetch.state, rig.request()) == (state, [])


# --- truncations, and where the leader's log is


def asking(rig, **log):
    fetch = rig.fetching(**log)
    rig.received(fetch, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    return fetch


@pytest.mark.parametrize(
    "found, state, effect",
    [
        ((0, 15), S.TRUNCATING, Truncate),
        ((30, 40), S.TRUNCATING, Restart),
        ((0, 30), S.PAUSED, None),
        (None, S.PAUSED, None),
    ],
)
def test_a_log_outside_its_leaders_goes_to_where_that_is(rig, found, state, effect):
    fetch = asking(rig, end=20)
    assert rig.in_session == set()
    wanted = effect and effect(fetch, found[1] if effect is Truncate else found[0])
    assert rig.fetcher.range_received(fetch, found, rig.now_s) == wanted
    assert fetch.state is state


@pytest.mark.parametrize("found", [(0, 20), None])
def test_a_log_that_ends_in_an_epoch_above_its_leaders_is_reported(rig, found):
    fetch = asking(rig, end=20, epoch=9)
    report = ReportAhead(fetch, LeaderEpoch(9))
    assert rig.fetcher.range_received(fetch, found, rig.now_s) == report
    assert fetch.state is S.PAUSED


def test_a_range_that_comes_too_late_changes_nothing(rig):
    fetch = asking(rig, end=20)
    rig.fetcher.removed(fetch.replica)
    assert rig.fetcher.range_received(fetch, (0, 15), rig.now_s) is None


def test_a_partition_goes_on_once_its_log_was_truncated(rig):
    fetch = rig.fetching(end=20)
    rig.received(fetch, diverging=(3, 15))
    assert rig.request() == []
    assert rig.fetcher.truncated(fetch, rig.now_s, is_done=True) is None
    assert rig.request() == [0]


def test_a_truncation_that_failed_is_tried_again_after_a_pause(rig):
    fetch = appending(rig, end=5, start=5)
    rig.fetcher.overlapped(fetch, row(records=RECORDS, log_start_offset=5), 4, 6)
    assert rig.fetcher.truncated(fetch, rig.now_s, is_done=False) is None
    assert (fetch.state, fetch.row) == (S.PAUSED, None)


@pytest.mark.parametrize("event", ["truncated", "written"])
def test_what_is_done_too_late_does_not_begin_anything(rig, event):
    fetch = appending(rig, end=20)
    if event == "written":
        fetch.replica.log.log_end_offset = 25
        rig.fetcher.appended(fetch, rig.now_s)
    else:
        fetch = rig.fetching(end=20)
        rig.received(fetch, diverging=(3, 15))
    rig.fetcher.removed(fetch.replica)
    if event == "written":
        rig.fetcher.written(fetch, rig.now_s)
    else:
        assert rig.fetcher.truncated(fetch, rig.now_s, is_done=True) is None
    assert fetch.is_ended
    assert rig.in_session == set()


# --- partitions and connections


def test_a_partition_that_is_assigned_again_is_fetched_at_once(rig):
    fetch = rig.fetching(end=20)
    rig.received(fetch, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.fetcher.assigned(Replica(0, fetch.replica.log, leader_epoch=6))
    assert fetch.is_ended
    assert rig.fetcher.resume(rig.now_s) is None
    assert rig.request() == [0]
    rig.fetcher.removed(fetch.replica)
    assert len(rig.fetcher.partitions) == 1, "a former role takes nothing away"


def test_a_lost_connection_brings_all_back_that_the_leader_had(rig):
    fetching, asked, paused, due = (rig.fetching(index, end=20) for index in range(4))
    rig.received(asked, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    rig.received(paused, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.received(due, records=RECORDS)
    rig.fetcher.appended(due, rig.now_s)
    rig.fetcher.disconnected()
    assert [each.state for each in (fetching, asked, paused, due)] == [
        S.DUE, S.DUE, S.PAUSED, S.DUE,
    ]  # fmt: skip
    assert rig.received(fetching, records=RECORDS) is None
    assert sorted(rig.request()) == [0, 1, 3]


def test_a_leader_is_tried_again_in_growing_pauses_until_it_answers(rig):
    assert not rig.fetcher.is_reconnecting
    pauses = [rig.fetcher.disconnected() for _ in range(7)]
    assert pauses[:3] == [RECONNECT_S_MIN, 0.1, 0.2]
    assert pauses[-2:] == [RECONNECT_S_MAX, RECONNECT_S_MAX]
    assert rig.fetcher.is_reconnecting
    rig.fetcher.responded()
    assert not rig.fetcher.is_reconnecting
    assert rig.fetcher.disconnected() == RECONNECT_S_MIN


@pytest.mark.parametrize(
    "leader_at, must_reconnect",
    [
        ((10, "a", 1), False),
        (None, False),  # not registered just now: it may be again
        ((11, "a", 1), True),
        ((10, "b", 1), True),
    ],
)
def test_a_connection_to_an_earlier_registration_ends(rig, leader_at, must_reconnect):
    for _ in range(3):
        rig.fetcher.disconnected()
    rig.fetcher.connecting((10, "a", 1))
    assert rig.fetcher.must_reconnect(leader_at) == must_reconnect
    assert (rig.fetcher.disconnected() == RECONNECT_S_MIN) == must_reconnect


@pytest.mark.parametrize(
    "error, pause_s",
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BACKOFF_S),
    ],
)
def test_a_request_that_is_refused_begins_a_new_session(rig, error, pause_s):
    fetch = rig.fetching(end=20)
    assert rig.request() == []
    assert rig.fetcher.refused(error) == pause_s
    assert rig.request() == [0]
    assert fetch.state is S.FETCHING


def test_only_what_has_paused_for_long_enough_is_fetched_again(rig):
    one, other = (rig.fetching(index, end=20) for index in range(2))
    rig.received(one, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.now_s += 0.02
    rig.received(other, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.now_s += 0.04
    assert rig.fetcher.resume(rig.now_s) == pytest.approx(0.01)
    assert [one.state, other.state] == [S.DUE, S.PAUSED]
