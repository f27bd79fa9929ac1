import asyncio
import errno
from collections.abc import Awaitable
from typing import Any

import pytest
from logfleet.node.handlers.list_offsets import list_offsets
from logfleet.node.log_search import BatchToSearch
from logfleet.records.record import Record, build_batch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse

NOW = 1_700_000_000_000


def ask(host, *rows: tuple[Any, ...], version: int = 11, topic: str = "topic") -> Any:
    """rows: (index, timestamp[, leader epoch]); answers their rows."""
    wanted = [
        ListOffsetsRequest.ListOffsetsPartition(
            partition_index=index,
            timestamp=timestamp,
            current_leader_epoch=rest[0] if rest else -1,
        )
        for index, timestamp, *rest in rows
    ]
    asked = ListOffsetsRequest(
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=wanted)]
    )
    answer = list_offsets(host, asked, host.context(version))
    if isinstance(answer, Awaitable):
        answer = asyncio.run(answered(answer))
    assert isinstance(answer, ListOffsetsResponse)
    encode(answer, version)  # nothing is set that this version lacks
    (found,) = answer.topics
    assert found.name == topic
    return [
        (row.error_code, row.offset, row.timestamp, row.leader_epoch) for row in found.partitions
    ]


def failing(*_: object) -> None:
    raise OSError(errno.EIO, "bad sector")


async def answered(answer: Awaitable[ListOffsetsResponse]) -> ListOffsetsResponse:
    return await answer


@pytest.fixture
def partition(host):
    """Offsets 0 to 2 in epoch 2, 3 to 5 in epoch 5; times 100, 101, 102, 300, 301, 200."""
    made = host.host(leader_epoch=2)
    for epoch, times in ((2, (100, 101, 102)), (5, (300, 301, 200))):
        made.log.start_epoch(epoch)
        made.leader_epoch = epoch
        made.append(build_batch([Record(None, b"v", NOW + time) for time in times]), NOW)
    return made


@pytest.mark.parametrize(
    "timestamp, expected",
    [
        (-1, (0, 6, -1, 5)),
        (-2, (0, 0, -1, 2)),
        (-3, (0, 4, NOW + 301, 5)),
        (-4, (0, 0, -1, 2)),
        (-5, (0, -1, -1, -1)),
        (-6, (0, -1, -1, -1)),
        (0, (0, 0, NOW + 100, 2)),
        (NOW + 102, (0, 2, NOW + 102, 2)),
        (NOW + 103, (0, 3, NOW + 300, 5)),
        (NOW + 302, (0, -1, -1, -1)),
    ],
)
def test_times_and_ends_are_found(host, partition, timestamp, expected) -> None:
    assert ask(host, (0, timestamp)) == [expected]


def test_a_shortened_log_begins_later(host, partition) -> None:
    partition.log.delete_records_before(4)
    assert ask(host, (0, -2), (9, -2))[0] == (0, 4, -1, 5)


@pytest.mark.parametrize(
    "timestamp, since", [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)]
)
def test_special_times_are_refused_to_versions_that_do_not_know_them(
    host, partition, timestamp, since
) -> None:
    for version in range(1, 12):
        ((error, *_),) = ask(host, (0, timestamp), version=version)
        assert (error == ErrorCode.UNSUPPORTED_VERSION) == (version < since)


def test_an_empty_log_has_ends_and_nothing_else(host) -> None:
    host.host()
    assert ask(host, (0, -1)) == [(0, 0, -1, 5)]
    assert ask(host, (0, -2)) == [(0, 0, -1, 5)]
    assert ask(host, (0, -3)) == [(0, -1, -1, -1)]
    assert ask(host, (0, NOW)) == [(0, -1, -1, -1)]


def test_the_leader_epoch_is_checked(host, partition) -> None:
    assert ask(host, (0, -1, 5))[0][0] == 0
    assert ask(host, (0, -1, 4))[0][0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(host, (0, -1, 6))[0][0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_partitions_that_are_not_here_or_named_twice_are_errors(host, partition) -> None:
    host.know_topic("other", {0: 2})
    twice, once = ask(host, (1, -1), (1, -2), (0, -1))
    assert twice == (ErrorCode.INVALID_REQUEST, -1, -1, -1)
    assert once[0] == 0
    assert ask(host, (0, -1), topic="none")[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(host, (0, -1), topic="other")[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_named_twice_is_answered_once(host, partition) -> None:
    row = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="topic", partitions=[row])
    empty = ListOffsetsRequest.ListOffsetsTopic(name="empty")
    answer = list_offsets(
        host, ListOffsetsRequest(topics=[topic, empty, topic]), host.context(version=11)
    )
    assert isinstance(answer, ListOffsetsResponse)
    (found,) = answer.topics
    assert [each.error_code for each in found.partitions] == [ErrorCode.INVALID_REQUEST]


def test_a_failing_disk_is_told(host, partition, monkeypatch) -> None:
    monkeypatch.setattr(partition.log, "segments_from", failing)
    assert ask(host, (0, NOW))[0][0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert [failed for failed, _ in host.failed] == [partition]


def test_a_disk_that_fails_in_the_thread_is_told(host, partition, monkeypatch) -> None:
    monkeypatch.setattr(BatchToSearch, "first_record", failing)
    assert ask(host, (0, NOW), (1, -1))[0][0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert [failed for failed, _ in host.failed] == [partition]


def test_batches_are_read_in_a_thread_and_ends_without_one(host, partition) -> None:
    ask(host, (0, -1), (0, -2))
    assert host.threads == []
    ask(host, (0, NOW + 101))
    ask(host, (0, -3))
    assert [work.__name__ for work in host.threads] == ["first_record"] * 2


def test_what_lies_before_the_start_of_the_log_is_not_found(host, partition) -> None:
    partition.log.delete_records_before(2)
    assert ask(host, (0, NOW + 100)) == [(0, 2, NOW + 102, 2)]
    partition.log.delete_records_before(5)
    # 3 and 4 are the youngest and gone, of the batch that both are in
    assert ask(host, (0, NOW + 300)) == [(0, -1, -1, -1)]
    assert len(host.threads) == 2


def test_leadership_that_ends_during_a_search_is_told(host, partition, monkeypatch) -> None:
    search = BatchToSearch.first_record

    def first_record(batch: BatchToSearch) -> Any:
        partition.stop_leading()
        return search(batch)

    monkeypatch.setattr(BatchToSearch, "first_record", first_record)
    assert ask(host, (0, NOW))[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_versions_without_leader_epochs_do_not_get_one(host, partition) -> None:
    assert ask(host, (0, -1), version=3) == [(0, 6, -1, -1)]
    assert ask(host, (0, -1), version=4) == [(0, 6, -1, 5)]
