import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.replication.fetch_check import diverging_epoch
from logfleet.replication.follower import (
    Action,
    FollowerStep,
    NextFetch,
    decide,
    high_watermark,
    log_start_offset,
    next_fetch,
    out_of_range,
    truncation_offset,
)
from logfleet.replication.leader_epochs import NO_EPOCH, EpochStart, LeaderEpochs
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchResponse

Row = FetchResponse.PartitionData
ASKED = NextFetch(20, LeaderEpoch(3), LeaderEpoch(7))


def epochs_of(*starts: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(tuple(EpochStart(LeaderEpoch(epoch), start) for epoch, start in starts))


def log_of(records: list[int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(records):
        epochs.observe(LeaderEpoch(epoch), offset)
    return epochs


def test_a_follower_fetches_from_its_end_and_says_its_last_epoch() -> None:
    assert next_fetch(epochs_of((1, 0), (3, 10)), 20, LeaderEpoch(7)) == ASKED
    assert next_fetch(epochs_of(), 0, LeaderEpoch(7)) == NextFetch(0, NO_EPOCH, LeaderEpoch(7))


@pytest.mark.parametrize(
    "epochs, diverging, offset",
    [
        ([(1, 0), (3, 10)], (3, 15), 15),  # the leader has less of the same epoch
        ([(1, 0), (3, 10)], (1, 8), 8),
        ([(1, 0), (3, 10)], (1, 14), 10),  # never more than what it has of that epoch itself
        (
            [(1, 0), (3, 10)],
            (2, 12),
            10,
        ),  # an epoch that it missed: its largest one below (KIP-279)
        ([(1, 0), (3, 10)], (3, 90), 20),
        ([(1, 0), (3, 20)], (2, 30), 20),  # an epoch of which it has no records: cutting forgets it
        ([(3, 10)], (2, 12), 10),
        ([], (2, 12), 12),
        ([], (2, 90), 20),
    ],
)
def test_a_log_is_cut_where_it_may_still_be_the_leaders(
    epochs: list[tuple[int, int]], diverging: tuple[int, int], offset: int
) -> None:
    epoch, end = diverging
    assert truncation_offset(epochs_of(*epochs), 20, (LeaderEpoch(epoch), end)) == offset


histories = st.lists(st.integers(1, 6), max_size=12).map(sorted)


@given(common=histories, mine=histories, leaders=histories)
def test_a_follower_ends_with_a_prefix_of_the_leaders_log_however_they_diverged(
    common: list[int], mine: list[int], leaders: list[int]
) -> None:
    # no two leaders share an epoch, so what they wrote on their own is of epochs that the other does not have
    last = max(common, default=0)
    follower = common + [last + 2 * epoch for epoch in mine]
    leader = common + [last + 2 * epoch + 1 for epoch in leaders]
    leader_epochs, current = log_of(leader), last + 100
    leader_epochs.assign(LeaderEpoch(current), len(leader))
    epochs = log_of(follower)
    for _ in range(2 * len(follower) + 2):
        asked = next_fetch(epochs, len(follower), LeaderEpoch(current))
        diverging = diverging_epoch(
            leader_epochs,
            0,
            len(leader),
            last_fetched_epoch=asked.last_fetched_epoch,
            fetch_offset=asked.offset,
            of_follower=True,
        )
        assert not isinstance(diverging, ErrorCode)
        if diverging is None:
            break
        offset = truncation_offset(epochs, len(follower), diverging)
        del follower[offset:]
        epochs.truncate_end(offset)
    else:
        pytest.fail("it goes on cutting for ever")
    assert follower == leader[: len(follower)]
    assert len(follower) >= len(common)


def test_records_are_appended_and_so_is_nothing() -> None:
    epochs = epochs_of((1, 0), (3, 10))
    assert decide(ASKED, ASKED, Row(partition_index=0), epochs) == FollowerStep(Action.APPEND)
    diverging = FetchResponse.EpochEndOffset(epoch=-1, end_offset=-1)
    row = Row(partition_index=0, diverging_epoch=diverging)
    assert decide(ASKED, ASKED, row, epochs) == FollowerStep(Action.APPEND)


def test_a_log_that_diverges_is_cut() -> None:
    row = Row(
        partition_index=0, diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=15)
    )
    decision = decide(ASKED, ASKED, row, epochs_of((1, 0), (3, 10)))
    assert decision == FollowerStep(Action.TRUNCATE, 15)


@pytest.mark.parametrize(
    "leader_start, decision",
    [
        (14, FollowerStep(Action.TRUNCATE, 15)),
        (15, FollowerStep(Action.RESET, 15)),
        (18, FollowerStep(Action.RESET, 18)),
    ],
)
def test_nothing_is_kept_of_a_log_that_diverges_below_its_leaders_start(
    leader_start: int, decision: FollowerStep
) -> None:
    """The leader knows no epochs of what it has deleted, so what is below may be of another log."""
    row = Row(
        partition_index=0,
        log_start_offset=leader_start,
        diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=15),
    )
    assert decide(ASKED, ASKED, row, epochs_of((1, 0), (3, 10))) == decision


def test_an_empty_leader_leaves_nothing_and_its_log_starts_where_it_did() -> None:
    row = Row(
        partition_index=0,
        log_start_offset=0,
        diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=0),
    )
    assert decide(ASKED, ASKED, row, epochs_of((3, 0))) == FollowerStep(Action.TRUNCATE, 0)


@pytest.mark.parametrize(
    "now",
    [
        NextFetch(20, LeaderEpoch(3), LeaderEpoch(8)),
        NextFetch(19, LeaderEpoch(3), LeaderEpoch(7)),
        NextFetch(20, LeaderEpoch(2), LeaderEpoch(7)),
        NextFetch(25, LeaderEpoch(7), LeaderEpoch(7)),
    ],
)
def test_the_answer_of_a_leader_of_the_past_changes_nothing(now: NextFetch) -> None:
    row = Row(
        partition_index=0, diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=15)
    )
    assert decide(ASKED, now, row, epochs_of((1, 0), (3, 10))).action is Action.FETCH_ON


@pytest.mark.parametrize(
    "error, action",
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Action.ASK_RANGE),
        (ErrorCode.FENCED_LEADER_EPOCH, Action.WAIT),
        (ErrorCode.STALE_BROKER_EPOCH, Action.WAIT),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Action.BACK_OFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Action.BACK_OFF),
        (ErrorCode.KAFKA_STORAGE_ERROR, Action.BACK_OFF),
    ],
)
def test_an_error_is_waited_out_or_tried_again(error: ErrorCode, action: Action) -> None:
    row = Row(partition_index=0, error_code=error)
    assert decide(ASKED, ASKED, row, epochs_of((3, 0))).action is action


@pytest.mark.parametrize(
    "start, end, decision",
    [
        (0, 15, FollowerStep(Action.TRUNCATE, 15)),
        (30, 40, FollowerStep(Action.RESET, 30)),
        (0, 30, FollowerStep(Action.BACK_OFF)),
        (20, 20, FollowerStep(Action.BACK_OFF)),
    ],
)
def test_a_follower_out_of_range_goes_to_where_the_leaders_log_is(
    start: int, end: int, decision: FollowerStep
) -> None:
    assert out_of_range(20, start, end) == decision


def test_a_followers_high_watermark_never_goes_back_nor_beyond_its_log() -> None:
    assert high_watermark(5, 15, 20) == 15
    assert high_watermark(5, 25, 20) == 20
    assert high_watermark(15, 5, 20) == 15
    assert high_watermark(15, -1, 20) == 15
    assert high_watermark(15, 5, 10) == 10  # after it was cut, or lost its end


def test_a_followers_log_start_follows_the_leaders_up_to_what_is_committed() -> None:
    assert log_start_offset(0, 10, 20) == 10
    assert log_start_offset(0, 30, 20) == 20
    assert log_start_offset(15, 10, 20) == 15
