import asyncio
import errno
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from logfleet.io.files import PosixFile, PosixFiles
from logfleet.log.config import LogConfig
from logfleet.node.handlers.list_offsets import list_offsets
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse

from broker_image.tests.unit.node.handlers.conftest import topic_id_of
from broker_image.tests.unit.node.partitions.replicas_rig import B, C, fetch, replicated

NOW = 1_700_000_000_000


def ask(
    host,
    *rows: tuple[Any, ...],
    version: int = 11,
    topic: str = "topic",
    replica: int = -1,
    isolation: int = 0,
) -> Any:
    """rows: (index, timestamp[, leader epoch]); answers their rows."""
    wanted = [
        ListOffsetsRequest.ListOffsetsPartition(
            partition_index=index,
            timestamp=timestamp,
            current_leader_epoch=LeaderEpoch(rest[0]) if rest else LeaderEpoch(-1),
        )
        for index, timestamp, *rest in rows
    ]
    asked = ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=wanted)],
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


def test_a_follower_checks_the_leader_epoch_before_it_reports_that_it_does_not_lead(host) -> None:
    host.know_topic("topic", {0: 2})
    former = host.host()
    host.partitions.remove(former)
    host.partitions.add(FollowerPartition(Replica.of(former), 2, LeaderEpoch(9)))
    asked = [(0, -1, epoch) for epoch in (8, 10, 9, -1)]
    assert [ask(host, row)[0][0] for row in asked] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
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


def test_a_failing_disk_is_reported(host, partition, monkeypatch) -> None:
    monkeypatch.setattr(PosixFile, "pread", failing)
    assert ask(host, (0, NOW), (1, -1))[0][0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert [failed for failed, _ in host.failed] == [partition]


def test_files_that_are_gone_with_the_leadership_are_no_failure(
    host, partition, monkeypatch
) -> None:
    def gone(*_: object) -> None:
        partition.end()
        raise FileNotFoundError(errno.ENOENT, "its topic is deleted")

    monkeypatch.setattr(PosixFile, "pread", gone)
    assert ask(host, (0, NOW))[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert host.failed == []


def test_ends_are_known_without_a_thread(host, partition) -> None:
    ask(host, (0, -1))
    ask(host, (0, -2))
    assert host.threads == []
    ask(host, (0, NOW + 101))
    ask(host, (0, -3))
    assert len(host.threads) == 2


class Reads:
    """Reads of segments and indexes from now on: (how, path, whether on the loop's thread)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str, bool]] = []
        self._loop = threading.get_ident()
        for cls, name in ((PosixFiles, "open"), (PosixFiles, "status"), (PosixFile, "pread")):
            monkeypatch.setattr(cls, name, self._seeing(name, getattr(cls, name)))

    def _seeing(self, name: str, whole: Any) -> Any:
        def call(target: Any, *args: Any, **how: Any) -> Any:
            path = target.path if isinstance(target, PosixFile) else args[0]
            self.seen.append((name, path, threading.get_ident() == self._loop))
            return whole(target, *args, **how)

        return call

    def on_the_loop(self) -> list[tuple[str, str]]:
        return [(name, path) for name, path, on_loop in self.seen if on_loop]

    def take(self, suffix: str) -> set[str]:
        """The files that were read; a next call returns those of later reads."""
        seen, self.seen = self.seen, []
        return {path for _, path, _ in seen if path.endswith(suffix)}


def written(rig, times: list[int], config: LogConfig) -> None:
    """A log that is closed properly: a batch of one record at each of the times (ms)."""
    log = rig.open(config)
    for time in times:
        log.append_as_leader(build_batch([Record(b"key", bytes(100), time)]), 5, NOW)
    rig.close(log)


@pytest.mark.parametrize("timestamp, expected", [(NOW + 75, 75), (NOW + 99, 99), (-3, 99)])
def test_time_indexes_are_read_in_a_thread_after_a_start_and_then_known(
    host, rig, monkeypatch, timestamp, expected
) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100)
    written(rig, [NOW + number for number in range(100)], config)
    log = rig.open(config)
    assert len(log.segments) > 10
    host.partitions.add(LeaderPartition("topic", topic_id_of("topic"), 0, log, LeaderEpoch(5)))
    host.run_in_thread = asyncio.to_thread
    reads = Reads(monkeypatch)
    for is_known in (False, True):
        assert ask(host, (0, timestamp)) == [(0, expected, NOW + expected, 5)]
        assert reads.on_the_loop() == []
        indexes = reads.take(".timeindex")
        assert len(indexes) <= 1 if is_known else len(indexes) > 5


def test_many_batches_of_one_time_are_walked_over_in_a_thread_and_in_turns(
    host, rig, monkeypatch
) -> None:
    monkeypatch.setattr("logfleet.log.search.HEADERS_AT_ONCE", 50)
    turns = []

    async def run_in_thread(work: Any, *args: object) -> Any:
        turns.append(work)
        return await asyncio.to_thread(work, *args)

    config = LogConfig(index_interval_bytes=1000)
    written(rig, [NOW] * 500 + [NOW + 1, NOW + 2], config)
    log = rig.open(config)
    host.partitions.add(LeaderPartition("topic", topic_id_of("topic"), 0, log, LeaderEpoch(5)))
    host.run_in_thread = run_in_thread
    reads = Reads(monkeypatch)
    assert ask(host, (0, NOW + 1)) == [(0, 500, NOW + 1, 5)]
    assert reads.on_the_loop() == []
    assert len(turns) > 5


def test_the_loop_goes_on_between_partitions_of_which_nothing_has_to_be_read(host) -> None:
    steps = 0
    for index in range(20):
        host.host(index=index)

    async def count(answer: Awaitable[Any]) -> None:
        nonlocal steps
        answering = asyncio.ensure_future(answer)
        while not answering.done():
            steps += 1
            await asyncio.sleep(0)

    wanted = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=NOW)
        for index in range(20)
    ]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="topic", partitions=wanted)]
    answer = list_offsets(host, ListOffsetsRequest(topics=topics), host.context(11))
    assert isinstance(answer, Awaitable)
    asyncio.run(count(answer))
    assert host.threads == []
    assert steps >= 20


def test_what_lies_before_the_start_of_the_log_is_not_found(host, partition) -> None:
    partition.log.delete_records_before(2)
    assert ask(host, (0, NOW + 100)) == [(0, 2, NOW + 102, 2)]
    partition.log.delete_records_before(5)
    # 3 and 4 are the youngest and gone, of the batch that both are in
    assert ask(host, (0, NOW + 300)) == [(0, -1, -1, -1)]
    assert len(host.threads) == 2


def test_leadership_that_ends_during_a_search_is_reported(host, partition, monkeypatch) -> None:
    pread = PosixFile.pread

    def losing(file: PosixFile, length: int, position: int) -> bytes:
        partition.end()
        return pread(file, length, position)

    monkeypatch.setattr(PosixFile, "pread", losing)
    assert ask(host, (0, NOW))[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_versions_without_leader_epochs_do_not_get_one(host, partition) -> None:
    assert ask(host, (0, -1), version=3) == [(0, 6, -1, -1)]
    assert ask(host, (0, -1), version=4) == [(0, 6, -1, 5)]


@pytest.fixture
def behind(host):
    """A new leader whose high watermark is 1, of three records; times 100, 101, 102."""
    made = host.host("behind")
    for time in (100, 101, 102):
        made.append(build_batch([Record(None, b"v", NOW + time)]), NOW)
    made.end()
    made.log.ends.hosted(1)
    state = replicated(3)
    host.partitions.add(
        LeaderPartition(
            made.topic, made.topic_id, 0, made.log, LeaderEpoch(5), replicas_state=state
        )
    )
    return host.partitions.get("behind", 0)


@pytest.mark.parametrize(
    "timestamp, version, error",
    [(each, 11, ErrorCode.OFFSET_NOT_AVAILABLE) for each in (-1, -3, NOW + 101, NOW + 500)]
    + [(each, 4, ErrorCode.LEADER_NOT_AVAILABLE) for each in (-1, NOW + 101, NOW + 500)],
)
def test_a_new_leader_does_not_report_an_end_before_the_one_reported_earlier(
    host, behind, timestamp, version, error
) -> None:
    """KIP-207."""
    assert ask(host, (0, timestamp), version=version, topic="behind") == [(error, -1, -1, -1)]
    for member in (B, C):
        fetch(behind, member, 3)
    assert ask(host, (0, timestamp), version=version, topic="behind")[0][0] == ErrorCode.NONE


def test_what_is_known_to_be_committed_is_found_at_once(host, behind) -> None:
    assert ask(host, (0, -2), topic="behind")[0][:2] == (0, 0)
    assert ask(host, (0, NOW + 100), topic="behind") == [(0, 0, NOW + 100, 5)]


def test_a_follower_learns_where_the_log_ends_whatever_is_committed(host, behind) -> None:
    """It truncates its log there; the high watermark would be too low (KIP-101)."""
    assert behind.high_watermark < behind.log_end_offset
    assert ask(host, (0, -1), topic="behind", replica=2) == [(0, behind.log_end_offset, -1, 5)]


@pytest.mark.parametrize(
    "timestamp, all_records, stable",
    [(-1, 6, 4), (-2, 0, 0), (-3, 4, -1), (NOW + 300, 3, 3), (NOW + 301, 4, -1)],
)
def test_who_reads_only_committed_transactions_sees_an_end_before_an_open_one(
    host, partition, monkeypatch, timestamp: int, all_records: int, stable: int
) -> None:
    """KIP-98. What is found by time but is not stable is not there, as in Kafka."""
    monkeypatch.setattr(partition.log, "last_stable_offset", lambda _: 4)
    for isolation, expected in ((0, all_records), (1, stable)):
        ((error, offset, _, _),) = ask(host, (0, timestamp), isolation=isolation)
        assert (error, offset) == (ErrorCode.NONE, expected)
