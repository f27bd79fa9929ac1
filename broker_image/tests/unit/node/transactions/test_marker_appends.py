"""Markers are appended to what this broker leads, and done once they are committed."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.node.transactions.marker_appends import MarkerAppends, MarkerCall, WritableMarker
from logfleet.records.batch import parse_header
from logfleet.records.control import Marker, marker_batch
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.replication.waiters import COMMITTED
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from broker_image.tests.unit.node.handlers.conftest import NOW, Host
from broker_image.tests.unit.node.partitions.replicas_rig import (
    A,
    B,
    C,
    Told,
    fetch,
    replicated,
    shrink,
)
from broker_image.tests.unit.waiting import Until

MARKER_BYTES = 78
_Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


class Offsets:
    """Group coordinators. loaded: whether they take markers; ended: what they were given."""

    def __init__(self) -> None:
        self.loaded = True
        self.ended: list[tuple[int, list[Marker]]] = []

    def takes_markers(self, _partition: LeaderPartition, /) -> bool:
        return self.loaded

    def end_transactions(self, partition: LeaderPartition, markers: Sequence[Marker], /) -> bool:
        self.ended.append((partition.log_end_offset, list(markers)))
        return True


class Rig:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.offsets = Offsets()
        self.appends = MarkerAppends(
            host.partitions,
            self.offsets,
            clock=host,  # type: ignore[arg-type]
            timeout_s=30.0,
            storage_failed=host.storage_failed,
        )

    def write(self, *markers: WritableMarker) -> dict[tuple[int, str], int]:
        """The answer, which is there at once."""
        call = self.appends.append(markers)
        assert not call.waiting
        return rows(call.response())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    host = Host(tmp_path / "data")
    yield Rig(host)
    host.close()


def marker(
    *partitions: tuple[str, int],
    producer: int = 7,
    epoch: int = 3,
    commit: bool = True,
    coordinator: int = 5,
    version: int = 2,
) -> WritableMarker:
    return WritableMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[_Topic(name=name, partition_indexes=[index]) for name, index in partitions],
        coordinator_epoch=coordinator,
        transaction_version=version,
    )


def rows(response: WriteTxnMarkersResponse) -> dict[tuple[int, str], int]:
    """(producer id, partition) -> error. Each partition has one row."""
    found = [
        ((result.producer_id, f"{topic.name}-{row.partition_index}"), row.error_code)
        for result in response.markers
        for topic in result.topics
        for row in topic.partitions
    ]
    assert len(found) == len(dict(found)), "a partition has two rows"
    return dict(found)


def write_records(partition: LeaderPartition, epoch: int, producer: int = 7) -> None:
    """The first batch of a transaction."""
    stamp = ProducerStamp(producer, epoch, 0, transactional=True)
    partition.append(build_batch([Record(None, b"v", NOW)], producer=stamp), NOW)


def open_producers(partition: LeaderPartition) -> set[int]:
    return {each for each, _ in partition.log.producers.states.open_transactions()}


T0, T1 = ("topic", 0), ("topic", 1)
OK = ErrorCode.NONE


def test_a_marker_is_in_the_log_as_kafka_writes_it_and_ends_the_transaction(rig: Rig) -> None:
    partition = rig.host.host()
    write_records(partition, 2)
    assert rig.write(marker(T0)) == {(7, "topic-0"): OK}
    piece: Any = partition.log.read(1, 1000)
    written = bytearray(piece.read())
    expected = marker_batch(7, 3, commit=True, coordinator_epoch=5, now_ms=NOW)
    assert parse_header(written).base_offset == 1
    assert written[16:] == expected[16:]
    assert open_producers(partition) == set()


def test_a_marker_of_no_producer_epoch_or_version_is_invalid_and_the_others_are_appended(
    rig: Rig,
) -> None:
    partition = rig.host.host()
    answer = rig.write(
        marker(T0, producer=-1),
        marker(T0, producer=5, epoch=-1),
        marker(T0),
        marker(T0, producer=6, version=-1),
    )
    invalid = dict.fromkeys([(-1, "topic-0"), (5, "topic-0"), (6, "topic-0")], 42)
    assert answer == {**invalid, (7, "topic-0"): OK}
    assert partition.log_end_offset == 1


def test_all_markers_of_a_request_for_a_partition_are_one_write_and_wake_readers_once(
    rig: Rig,
) -> None:
    partition, reader = rig.host.host(), Told()
    partition.add_waiter(reader, COMMITTED)
    answer = rig.write(*(marker(T0, producer=each) for each in range(50)))
    assert answer == {(each, "topic-0"): OK for each in range(50)}
    assert partition.log_end_offset == 50
    assert (reader.sizes, partition.bytes_in) == ([50 * MARKER_BYTES], 50 * MARKER_BYTES)


@pytest.mark.asyncio
async def test_the_call_is_done_once_every_partition_has_committed_its_markers(
    rig: Rig, until: Until
) -> None:
    zero = rig.host.host("topic", 0, replicas_state=replicated())
    one = rig.host.host("topic", 1, replicas_state=replicated())
    call, done = waiting(rig, marker(T0, T1), marker(T1, producer=8))
    assert call.waiting == 2
    for member in (B, C):
        fetch(one, member, 2)
    await until(lambda: call.waiting == 1)
    assert not done
    fetch(zero, B, 1)
    await asyncio.sleep(0)
    assert not done, "one follower of the ISR lacks it"
    fetch(zero, C, 1)
    await until(lambda: done)
    assert rows(call.response()) == {
        (7, "topic-0"): OK,
        (7, "topic-1"): OK,
        (8, "topic-1"): OK,
    }


def waiting(rig: Rig, *markers: WritableMarker) -> tuple[MarkerCall, list[bool]]:
    """A call that waits, and a list that has an item once it is done."""
    call, done = rig.appends.append(markers), []
    assert call.waiting
    call.on_done = lambda: done.append(True)
    return call, done


@pytest.mark.asyncio
async def test_a_marker_whose_leader_stops_before_its_commit_is_not_done(
    rig: Rig, until: Until
) -> None:
    partition = rig.host.host("topic", 0, replicas_state=replicated())
    rig.host.host("topic", 1)
    call, done = waiting(rig, marker(T0, T1))
    rig.host.partitions.remove(partition)
    await until(lambda: done)
    assert rows(call.response()) == {
        (7, "topic-0"): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (7, "topic-1"): OK,
    }


@pytest.mark.asyncio
async def test_a_marker_that_followers_do_not_fetch_in_time_is_not_done(
    rig: Rig, until: Until
) -> None:
    rig.host.host("topic", 0, replicas_state=replicated())
    rig.appends.timeout_s = 0.01
    call, done = waiting(rig, marker(T0))
    await until(lambda: done)
    assert rows(call.response()) == {(7, "topic-0"): ErrorCode.REQUEST_TIMED_OUT}


@pytest.mark.asyncio
async def test_a_marker_that_was_refused_stays_so_while_others_of_its_partition_wait(
    rig: Rig, until: Until
) -> None:
    partition = rig.host.host("topic", 0, replicas_state=replicated())
    write_records(partition, 3)
    call, done = waiting(rig, marker(T0), marker(T0, producer=8))
    fetch(partition, B, 2)
    fetch(partition, C, 2)
    await until(lambda: done)
    assert rows(call.response()) == {
        (7, "topic-0"): ErrorCode.INVALID_PRODUCER_EPOCH,
        (8, "topic-0"): OK,
    }


def test_a_partition_that_takes_no_markers_here_refuses_them_as_in_kafka(rig: Rig) -> None:
    rig.host.know_topic("elsewhere", {0: 2})
    few = rig.host.host("few", 0, replicas_state=replicated())
    shrink(few, A)
    followed = rig.host.host("followed")
    rig.host.partitions.add(FollowerPartition(followed, 2, LeaderEpoch(6)))
    names = [(name, 0) for name in ("elsewhere", "unknown", "few", "followed")]
    assert rig.write(marker(*names)) == {
        (7, "elsewhere-0"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (7, "unknown-0"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (7, "few-0"): ErrorCode.NOT_ENOUGH_REPLICAS,
        (7, "followed-0"): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert few.log_end_offset == 0


@pytest.mark.parametrize(
    "version, epoch, error",
    [
        (2, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, OK),
        (0, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 3, OK),
        (1, 3, OK),
    ],
)
def test_an_old_marker_does_not_end_an_open_transaction(rig: Rig, version, epoch, error) -> None:
    partition = rig.host.host()
    write_records(partition, 3)
    assert rig.write(marker(T0, epoch=epoch, version=version)) == {(7, "topic-0"): error}
    assert open_producers(partition) == (set() if error is OK else {7})
    assert partition.log_end_offset == 1 + (error is OK)


@pytest.mark.parametrize("version, epoch", [(2, 4), (0, 3)])
def test_a_marker_that_is_sent_twice_is_written_twice(rig: Rig, version, epoch) -> None:
    partition = rig.host.host()
    write_records(partition, 3)
    for end_offset in (2, 3):
        answer = rig.write(marker(T0, epoch=epoch, version=version))
        assert (answer, partition.log_end_offset) == ({(7, "topic-0"): OK}, end_offset)


def test_a_coordinator_that_was_replaced_ends_nothing(rig: Rig) -> None:
    partition = rig.host.host()
    rig.write(marker(T0, coordinator=6))
    write_records(partition, 4)
    late = marker(T0, epoch=5, coordinator=5)
    assert rig.write(late) == {(7, "topic-0"): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert open_producers(partition) == {7}


def test_a_marker_of_a_producer_that_the_partition_has_forgotten_is_written(rig: Rig) -> None:
    partition = rig.host.host()
    assert rig.write(marker(T0, producer=99, commit=False)) == {(99, "topic-0"): OK}
    assert partition.log_end_offset == 1


def test_a_partition_that_a_marker_names_twice_gets_it_once(rig: Rig) -> None:
    partition = rig.host.host()
    assert rig.write(marker(T0, T0)) == {(7, "topic-0"): OK}
    assert partition.log_end_offset == 1


def test_of_two_markers_of_a_producer_for_a_partition_the_last_one_is_answered(rig: Rig) -> None:
    partition = rig.host.host()
    newer, older = marker(T0, epoch=5), marker(T0, epoch=4)
    assert rig.write(newer, older) == {(7, "topic-0"): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert rig.write(older, newer) == {(7, "topic-0"): OK}
    assert partition.log_end_offset == 2


def test_a_batch_that_waits_to_begin_the_transaction_is_refused_after_its_marker(rig: Rig) -> None:
    partition = rig.host.host()
    stamp = ProducerStamp(7, 3, 0, transactional=True)
    header = parse_header(build_batch([Record(None, b"v", NOW)], producer=stamp))
    for version, is_kept in ((2, True), (0, False)):
        guard = partition.guards.ask(header, adds=True, now_ms=0)
        rig.write(marker(T0, epoch=3, version=version))
        refusal = partition.guards.refusal(guard, header, has_batches=True)
        assert (refusal is None) is is_kept, version


def test_a_marker_that_is_refused_leaves_waiting_batches_alone(rig: Rig) -> None:
    partition = rig.host.host()
    write_records(partition, 5)
    stamp = ProducerStamp(7, 3, 0, transactional=True)
    header = parse_header(build_batch([Record(None, b"v", NOW)], producer=stamp))
    guard = partition.guards.ask(header, adds=True, now_ms=0)
    rig.write(marker(T0, epoch=4, version=0))
    assert partition.guards.refusal(guard, header, has_batches=True) is None


def test_a_disk_that_fails_takes_its_partition_out_of_service(rig: Rig, monkeypatch) -> None:
    partition = rig.host.host()
    rig.host.host("other")

    def fail(*_: object) -> None:
        raise OSError(5, "it broke")

    monkeypatch.setattr(partition.log, "append_markers", fail)
    assert rig.write(marker(T0, ("other", 0)), marker(T0, producer=8)) == {
        (7, "topic-0"): ErrorCode.KAFKA_STORAGE_ERROR,
        (7, "other-0"): OK,
        (8, "topic-0"): ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert [each for each, _ in rig.host.failed] == [partition]


def test_offsets_of_a_transaction_are_ended_with_the_append_and_only_of_what_is_in_the_log(
    rig: Rig,
) -> None:
    partition = rig.host.host(OFFSETS_TOPIC)
    write_records(partition, 3)
    name = (OFFSETS_TOPIC, 0)
    answer = rig.write(marker(name), marker(name, producer=8, commit=False))
    assert answer == {
        (7, f"{OFFSETS_TOPIC}-0"): ErrorCode.INVALID_PRODUCER_EPOCH,
        (8, f"{OFFSETS_TOPIC}-0"): OK,
    }
    assert rig.offsets.ended == [(2, [Marker(8, 3, False, 5)])]


def test_while_a_group_coordinator_loads_the_partition_is_as_if_led_elsewhere(rig: Rig) -> None:
    partition = rig.host.host(OFFSETS_TOPIC)
    rig.offsets.loaded = False
    answer = rig.write(marker((OFFSETS_TOPIC, 0)))
    assert answer == {(7, f"{OFFSETS_TOPIC}-0"): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (partition.log_end_offset, rig.offsets.ended) == (0, [])
