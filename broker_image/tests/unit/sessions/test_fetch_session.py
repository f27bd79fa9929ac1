from typing import Any

import pytest
from logfleet.replication.waiters import COMMITTED, LOG_START, WRITTEN, Waiters
from logfleet.sessions.fetch_session import EPOCH_MAX, FetchSession, next_epoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

A, B, C = (b"topic", 0), (b"topic", 1), (b"other", 0)


class Source:
    """What partitions listen to. followers: those that listen to appends too."""

    log_end_offset = 9

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.followers: list[Any] = []

    def add_waiter(self, waiter: Any, interests: int) -> None:
        self.listeners.append(waiter)
        assert interests & COMMITTED
        assert interests & LOG_START
        if interests & WRITTEN:
            self.followers.append(waiter)

    def remove_waiter(self, waiter: Any) -> None:
        self.listeners.remove(waiter)


class Waiting:
    def __init__(self) -> None:
        self.bytes = 0
        self.ended = 0
        self.ends_soon = False

    def appended(self, size: int) -> None:
        self.bytes += size

    def end_soon(self) -> None:
        self.ends_soon = True

    def end(self) -> None:
        self.ended += 1


def asked(offset: int = 0) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(fetch_offset=offset)


def row(
    high_watermark: int = 5, records: bytes = b"", start: int = 0, **more: Any
) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        high_watermark=high_watermark, log_start_offset=start, records=records, **more
    )


def session(*keys: tuple[bytes, int], offset: int = 5, privileged: bool = False) -> FetchSession:
    """One whose reader has read everything up to `offset`."""
    made = FetchSession(7, by_id=True, privileged=privileged, now_ms=0)
    for key in keys:
        made.store_sent(made.add(key, asked(offset)), row(offset))
    return made


def due(held: FetchSession) -> list[tuple[bytes, int]]:
    return [partition.key for partition in held.due()]


def test_epochs_go_around_without_those_that_mean_something_else() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, EPOCH_MAX - 1, EPOCH_MAX)] == [1, 2, EPOCH_MAX, 1]


def test_what_was_read_to_its_end_is_not_read_again() -> None:
    held = session(A, B)
    assert due(held) == []
    assert not held.store_sent(held.partitions[A], row())


@pytest.mark.parametrize(
    "answer",
    [
        row(6),
        row(start=1),
        row(records=b"x"),
        row(-1, start=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID),
        row(diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=2)),
        row(preferred_read_replica=2),
    ],
)
def test_what_is_new_is_told(answer) -> None:
    held = session(A)
    held.mark_due(held.partitions[A])
    assert held.store_sent(held.partitions[A], answer)


@pytest.mark.parametrize(
    "answer",
    [
        row(records=b"x"),
        row(error_code=ErrorCode.UNKNOWN_TOPIC_ID),
        row(diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=2)),
        row(preferred_read_replica=2),
        row(6),  # there is a record more, for which this answer had no room
    ],
)
def test_what_has_more_to_say_is_read_next_time_too(answer) -> None:
    held = session(A)
    held.mark_due(held.partitions[A])
    held.store_sent(held.partitions[A], answer)
    assert due(held) == [A]


def test_after_an_error_everything_is_told_again() -> None:
    held = session(A)
    assert held.store_sent(held.partitions[A], row(-1, start=-1, error_code=3))
    assert held.store_sent(held.partitions[A], row())
    assert not held.store_sent(held.partitions[A], row())


def test_a_partition_that_gave_records_goes_to_the_end_of_the_order() -> None:
    held = session(A, B, C)
    held.update({A: asked(), B: asked(), C: asked()}, [])
    assert due(held) == [A, B, C]
    held.store_sent(held.partitions[A], row(records=b"x"))
    assert due(held) == [B, C, A]
    held.store_sent(held.partitions[C], row(error_code=3))
    assert due(held) == [B, C, A]


def test_a_request_adds_moves_and_forgets() -> None:
    held = session(A, B)
    held.update({C: asked(1), B: asked(9)}, [A, (b"unknown", 0)])
    assert list(held.partitions) == [B, C]
    assert due(held) == [B, C]
    assert held.partitions[B].wanted.fetch_offset == 9
    # what is added and forgotten by one request is forgotten
    held.update({A: asked()}, [A])
    assert due(held) == [B, C]


def test_partitions_tell_of_changes() -> None:
    held, source, waiting = session(A, B), Source(), Waiting()
    partition = held.partitions[A]
    partition.listen(source)
    partition.listen(source)
    assert source.listeners == [partition]
    partition.log_start_moved()
    assert due(held) == [A]
    held.store_sent(partition, row())
    partition.committed(10)  # nobody waits
    held.parked = waiting
    partition.committed(10)
    assert (due(held), waiting.bytes, waiting.ended) == ([A], 10, 0)
    held.store_sent(partition, row())
    partition.role_ended()
    assert (due(held), waiting.ended) == ([A], 1)


def test_a_follower_waits_for_what_is_written_and_hears_of_what_is_committed() -> None:
    held, source, waiting = session(A, privileged=True), Source(), Waiting()
    partition = held.partitions[A]
    partition.listen(source)
    assert (source.listeners, source.followers) == ([partition], [partition])
    held.update({A: asked(9)}, [])
    held.store_sent(partition, row())
    held.parked = waiting
    partition.committed(10)
    assert (due(held), waiting.bytes) == ([A], 0)
    held.store_sent(partition, row(6))
    assert due(held) == []
    partition.written(10)
    assert (due(held), waiting.bytes) == ([A], 10)


def test_a_follower_that_found_no_room_in_an_answer_asks_for_the_rest_though_nothing_new_comes() -> (
    None
):
    """Unlike a consumer it reads beyond the high watermark, so having reached that says nothing."""
    held, source = session(A, privileged=True), Source()
    partition = held.partitions[A]
    partition.listen(source)
    held.update({A: asked(8)}, [])
    held.store_sent(partition, row(high_watermark=5))
    assert due(held) == [A]
    held.update({A: asked(9)}, [])
    held.store_sent(partition, row(high_watermark=5))
    assert due(held) == []


def test_nobody_listens_to_what_is_gone() -> None:
    held, old, new, waiting = session(A, B), Source(), Source(), Waiting()
    for partition in held.partitions.values():
        partition.listen(old)
    held.partitions[B].listen(new)
    assert (len(old.listeners), len(new.listeners)) == (1, 1)
    held.update({}, [A])
    assert old.listeners == []
    held.parked = waiting
    held.close()
    assert (new.listeners, waiting.ended) == ([], 1)
    held.partitions[B].listen(new)
    assert new.listeners == []


class TestReadingWhatIsStable:
    """A session of a consumer with isolation.level=read_committed."""

    @pytest.fixture
    def held(self) -> FetchSession:
        made = FetchSession(7, by_id=True, privileged=False, reads_stable=True, now_ms=0)
        partition = made.add(A, asked(5))
        partition.listen(Stable())
        made.store_sent(partition, row(9, last_stable_offset=5))
        return made

    def test_what_is_not_stable_is_not_due(self, held: FetchSession) -> None:
        assert due(held) == []
        held.mark_due(held.partitions[A])
        assert not held.store_sent(held.partitions[A], row(9, last_stable_offset=5))
        assert due(held) == []

    def test_stable_records_are_due_and_count_for_the_parked_request(
        self, held: FetchSession
    ) -> None:
        parked = held.parked = Waiting()
        held.partitions[A].stable(80)
        assert (due(held), parked.bytes, parked.ended) == ([A], 80, 0)

    def test_the_last_stable_offset_alone_is_not_told(self, held: FetchSession) -> None:
        """As Kafka's FetchSession: high watermark and log start are."""
        held.partitions[A].stable(80)
        held.partitions[A].wanted = asked(8)
        assert not held.store_sent(held.partitions[A], row(9, last_stable_offset=8))
        assert due(held) == []

    def test_a_commit_is_told_with_the_next_answer_and_ends_no_wait(
        self, held: FetchSession
    ) -> None:
        parked = held.parked = Waiting()
        source = held.partitions[A].source
        assert isinstance(source, Stable)
        source.waiters.next_committed(80)
        source.waiters.next_committed(80)
        assert (due(held), parked.bytes, parked.ended, parked.ends_soon) == ([A], 0, 0, False)
        assert held.store_sent(held.partitions[A], row(10, last_stable_offset=5))
        assert due(held) == []
        source.waiters.next_committed(80)
        assert due(held) == [A]


class Stable:
    """A log with waiters."""

    log_end_offset = 9

    def __init__(self) -> None:
        self.waiters = Waiters()
        self.add_waiter, self.remove_waiter = self.waiters.add, self.waiters.remove
