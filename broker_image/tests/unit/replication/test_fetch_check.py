import pytest
from logfleet.replication.fetch_check import EpochEnd, diverging_epoch, leader_epoch_error
from logfleet.replication.leader_epochs import NO_EPOCH, EpochStart, LeaderEpochs
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode


@pytest.mark.parametrize(
    "current, error",
    [
        (5, ErrorCode.NONE),
        (NO_EPOCH, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_client_of_another_leader_epoch_is_not_served(current: int, error: ErrorCode) -> None:
    assert leader_epoch_error(LeaderEpoch(current), LeaderEpoch(5)) is error


@pytest.mark.parametrize(
    "last_fetched_epoch, fetch_offset, answer",
    [
        (NO_EPOCH, 5000, None),
        (4, 50, None),
        (2, 30, None),
        (2, 31, (2, 30)),  # more of that epoch than the leader has
        (3, 40, (2, 30)),  # an epoch that the leader never saw
        (4, 61, (4, 60)),
        (2, 9, ErrorCode.OFFSET_OUT_OF_RANGE),
        (5, 50, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_reader_is_told_where_its_log_left_the_leaders(
    last_fetched_epoch: int, fetch_offset: int, answer: EpochEnd | ErrorCode | None
) -> None:
    epochs = LeaderEpochs((EpochStart(LeaderEpoch(2), 10), EpochStart(LeaderEpoch(4), 30)))
    assert answer == diverging_epoch(
        epochs,
        10,
        60,
        last_fetched_epoch=LeaderEpoch(last_fetched_epoch),
        fetch_offset=fetch_offset,
        of_follower=True,
    )


@pytest.mark.parametrize(
    "last_fetched_epoch, log_start_offset, reader, answer",
    [
        (1, 10, "a follower", (1, 10)),
        (1, 10, "a consumer", None),  # a consumer reads on
        (2, 10, "a follower", None),  # the leader knows that its log had this epoch there
        (NO_EPOCH, 10, "a follower", None),
        (1, 0, "a follower", None),  # nothing has been deleted
    ],
)
def test_a_follower_that_ends_where_the_leader_starts_is_not_believed_by_an_epoch_that_is_forgotten(
    last_fetched_epoch: int, log_start_offset: int, reader: str, answer: EpochEnd | None
) -> None:
    epochs = LeaderEpochs(
        (EpochStart(LeaderEpoch(2), log_start_offset), EpochStart(LeaderEpoch(4), 30))
    )
    assert answer == diverging_epoch(
        epochs,
        log_start_offset,
        60,
        last_fetched_epoch=LeaderEpoch(last_fetched_epoch),
        fetch_offset=log_start_offset,
        of_follower=reader == "a follower",
    )
