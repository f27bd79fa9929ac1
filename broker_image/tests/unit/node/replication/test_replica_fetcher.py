"""One follower against a leader of a few lines, whose every answer the test decides."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.files import Files, PosixFiles
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.truncater import Truncater
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.kinds.brokers import BrokerValue, Endpoint
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.node.partitions.traffic import Traffic
from logfleet.node.replication.replica_fetcher import ReplicaFetcher
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.records.batch import assign_offsets
from logfleet.records.record import Record, build_batch
from logfleet.replication import fetcher as fetcher_module
from logfleet.sessions import reader_session
from logfleet.telemetry.decisions import Decisions, Kind
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.controller.running.controller_rig import recorded, until

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
LEADER = 1
SESSION = 77


def batch(base_offset: int, *values: bytes, epoch: int = 5) -> bytes:
    made = bytearray(build_batch([Record(None, value, NOW) for value in values]))
    assign_offsets(made, base_offset, LeaderEpoch(epoch))
    return bytes(made)


def row(index: int = 0, **fields: Any) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        **{
            "partition_index": index,
            "high_watermark": 0,
            "log_start_offset": 0,
            "records": b"",
            **fields,
        }
    )


class Leader(FakeBroker):
    """Answers a Fetch when the test wants it. asked: the next request; answer: the reply."""

    def __init__(self) -> None:
        super().__init__()
        self.answers[FetchRequest] = self._fetch
        self._asked: asyncio.Queue[tuple[FetchRequest, asyncio.Future[Any]]] = asyncio.Queue()
        self._reply: asyncio.Future[Any] | None = None

    async def _fetch(self, request: FetchRequest) -> Any:
        reply = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((request, reply))
        return await reply

    async def asked(self) -> FetchRequest:
        async with asyncio.timeout(10):
            request, self._reply = await self._asked.get()
        return request

    async def asked_about(self, index: int) -> FetchRequest:
        """The next request that names the partition; those before it get nothing."""
        request = await self.asked()
        while index not in dict(named(request)):
            self.answer()
            request = await self.asked()
        return request

    def answer(self, *rows: FetchResponse.PartitionData, **fields: Any) -> None:
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC, partitions=list(rows))
        fields = {"session_id": SESSION, "responses": [topic] if rows else [], **fields}
        self.reply(FetchResponse(**fields))

    def reply(self, reply: Any) -> None:
        assert self._reply is not None
        self._reply.set_result(reply)


TOPIC = b"topic-----------"


def named(request: FetchRequest) -> list[tuple[int, int]]:
    """(index, fetch offset) of what a request names."""
    return [
        (each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions
    ]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


class Follower:
    """Broker 2, on a real log directory.

    leader: where the image says that its leader is; leader_registered: that leader's broker epoch.
    cuts: offsets to which logs were cut; attempts: how often it looked up its leader.
    """

    def __init__(self, path: Path, leader: Leader, files: Files | None = None) -> None:
        self.node_id = 2
        self.broker_epoch = BrokerEpoch(20)
        self.config = broker_config(
            {"replica.fetch.backoff.ms": "60", "listeners": "PLAINTEXT://:0"}
        )
        self.truncater: Any = self
        self.decisions = Decisions(2, lambda: NOW)
        self.replicated = Traffic()
        self.throttle = ReplicationThrottle(self.config, ClusterImage)
        self.cuts: list[int] = []
        self.attempts = 0
        self.failed: list[OSError] = []
        self.may_cut = asyncio.Event()
        self.may_cut.set()
        self.leader: FakeBroker = leader
        self.leader_registered = 10
        files = files or PosixFiles()
        self._dir = LogDir(OpenFiles(files), str(path), "cluster", 2)
        self._flusher = Flusher(files)
        self._truncater = Truncater(
            LogDirs(OpenFiles(files), [self._dir]),
            self._flusher,
            Checkpointer(files, self._flusher),
            lambda _, error: self.failed.append(error),
        )
        self._epoch = 5

    def broker(self, broker_id: int) -> Broker | None:
        self.attempts += 1
        address = Endpoint("PLAINTEXT", "127.0.0.1", self.leader.port)
        return Broker(broker_id, BrokerEpoch(self.leader_registered), BrokerValue("i", (address,)))

    def storage_failed(self, _: FollowerPartition, error: OSError) -> None:
        self.failed.append(error)

    async def truncate(self, log: PartitionLog, offset: int, is_wanted: Any) -> bool:
        await self.may_cut.wait()
        if is_wanted():
            self.cuts.append(offset)
            await self._truncater.truncate(log, offset, is_wanted)
        return bool(is_wanted())

    async def reset_to(self, log: PartitionLog, offset: int, is_wanted: Any) -> bool:
        self.cuts.append(offset)
        await self._truncater.reset_to(log, offset, is_wanted)
        return True

    def follow(self, index: int = 0, *batches: bytes, leader_epoch: int = 5) -> FollowerPartition:
        name = TopicPartition("topic", index)
        log = self._dir.create(name, uuids.to_text(TOPIC), LogConfig(), NOW)
        for each in batches:
            log.append_as_follower(memoryview(each), LeaderEpoch(leader_epoch), NOW)
        return FollowerPartition(
            Replica("topic", TOPIC, index, log), LEADER, LeaderEpoch(leader_epoch)
        )

    def close(self) -> None:
        self._flusher.stop()
        self._dir.abandon()


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def me(tmp_path: Path, leader: Leader) -> Iterator[Follower]:
    made = Follower(tmp_path / "data", leader)
    yield made
    made.close()


@asynccontextmanager
async def fetching(
    me: Follower, leader: Leader, *followed: FollowerPartition
) -> AsyncIterator[Any]:
    fetcher = ReplicaFetcher(me, LEADER)
    for each in followed:
        fetcher.add(each)
    async with leader.running():
        task = asyncio.create_task(fetcher.run())
        try:
            yield fetcher
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_it_reports_its_id_and_where_its_logs_end(me, leader) -> None:
    followed = me.follow(0, batch(0, b"a", b"b", epoch=3))
    async with fetching(me, leader, followed):
        asked = await leader.asked()
        assert (asked.replica_state.replica_id, asked.replica_state.replica_epoch) == (2, 20)
        assert (asked.session_id, asked.session_epoch) == (0, 0)
        assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes) == (500, 1, 10485760)
        (wanted,) = asked.topics[0].partitions
        assert (wanted.fetch_offset, wanted.last_fetched_epoch) == (2, 3)
        assert (wanted.current_leader_epoch, wanted.log_start_offset) == (5, 0)
        assert wanted.partition_max_bytes == 1048576


async def test_records_are_appended_as_they_are_and_the_next_fetch_is_behind_them(
    me, leader
) -> None:
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other):
        assert named(await leader.asked()) == [(0, 0), (1, 0)]
        sent = batch(0, b"a", b"b") + batch(2, b"c")
        leader.answer(row(records=sent, high_watermark=2))
        asked = await leader.asked()
        assert (asked.session_id, asked.session_epoch) == (SESSION, 1)
        assert named(asked) == [(0, 3)]
        assert one.log.read(0, 1 << 20).read() == sent
        assert (one.high_watermark, other.high_watermark) == (2, 0)
        assert (me.replicated.bytes_in, one.lag) == (len(sent), 0)
        leader.answer(row(high_watermark=3), row(1, high_watermark=4))
        assert named(await leader.asked()) == []
        assert one.high_watermark == 3
        assert (one.lag, other.lag) == (0, 4)


async def test_the_log_starts_where_the_leaders_does(me, leader) -> None:
    followed = me.follow(0, batch(0, b"a", b"b"))
    async with fetching(me, leader, followed):
        await leader.asked()
        leader.answer(row(high_watermark=2, log_start_offset=1))
        asked = await leader.asked()
        assert asked.topics[0].partitions[0].log_start_offset == 1
        assert followed.log.log_start_offset == 1


async def test_what_a_former_leader_answers_changes_nothing(me, leader) -> None:
    followed = me.follow(0, batch(0, b"a", b"b"))
    async with fetching(me, leader, followed) as fetcher:
        for answer in (
            row(records=batch(2, b"c"), high_watermark=3),
            row(diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=0)),
            row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        ):
            asked = await leader.asked()
            assert named(asked) == [(0, 2)]
            epoch = followed.leader_epoch
            assert asked.topics[0].partitions[0].current_leader_epoch == epoch
            fetcher.remove(followed)
            followed = FollowerPartition(followed, LEADER, epoch + 1)
            fetcher.add(followed)
            leader.answer(answer)
        await leader.asked()
        assert (followed.log.log_end_offset, followed.high_watermark, me.cuts) == (2, 0, [])


async def test_a_partition_that_is_followed_no_more_is_forgotten(me, leader) -> None:
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other) as fetcher:
        await leader.asked()
        fetcher.remove(one)
        leader.answer(row(records=batch(0, b"a")))
        assert forgotten(await leader.asked()) == [0]
        assert one.log.log_end_offset == 0


async def test_a_fetcher_without_partitions_does_nothing_until_there_is_one(
    me: Follower, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = me.follow()
    async with fetching(me, leader, followed) as fetcher:
        await leader.asked()
        fetcher.remove(followed)
        waits: list[float | None] = []

        async def wait_for(work: Any, timeout_s: float | None) -> None:
            waits.append(timeout_s)
            await work

        monkeypatch.setattr(asyncio, "wait_for", wait_for)
        leader.answer()
        await until(lambda: waits == [None])
        fetcher.add(followed)
        assert named(await leader.asked()) == [(0, 0)]


async def test_a_log_that_diverges_is_cut_while_others_are_fetched(me, leader) -> None:
    followed = me.follow(0, batch(0, b"a", epoch=3), batch(1, b"b", epoch=4))
    other = me.follow(1)
    me.may_cut.clear()
    async with fetching(me, leader, followed, other):
        await leader.asked()
        leader.answer(row(diverging_epoch=FetchResponse.EpochEndOffset(epoch=3, end_offset=1)))
        asked = await leader.asked()
        assert (named(asked), forgotten(asked)) == ([], [0])
        leader.answer(row(1, records=batch(0, b"x")))
        asked = await leader.asked()
        assert other.log.log_end_offset == 1
        me.may_cut.set()
        leader.answer()
        asked = await leader.asked_about(0)
        assert named(asked) == [(0, 1)]
        assert asked.topics[0].partitions[0].last_fetched_epoch == 3
        assert me.cuts == [1]
    (decision,) = recorded(me.decisions, Kind.TRUNCATION)
    assert decision.cause == "broker 1, which leads in epoch 5, does not have what was behind it"
    assert (decision.topic, decision.partition, decision.broker) == ("topic", 0, 2)
    assert decision.facts == {"end_offset": [2, 1], "leader": 1, "leader_epoch": 5}


async def test_a_log_that_ends_before_the_leaders_starts_is_reset(me, leader) -> None:
    followed = me.follow(0)

    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        (wanted,) = request.topics[0].partitions
        assert (request.replica_id, wanted.current_leader_epoch) == (2, 5)
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, offset={-2: 100, -1: 120}[wanted.timestamp]
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="topic", partitions=[found])
        return ListOffsetsResponse(topics=[topic])

    leader.answers[ListOffsetsRequest] = offsets
    async with fetching(me, leader, followed):
        await leader.asked()
        leader.answer(row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        await until(lambda: me.cuts == [100])
        assert named(await leader.asked_about(0)) == [(0, 100)]
        assert followed.log.log_start_offset == 100
    (decision,) = recorded(me.decisions, Kind.TRUNCATION)
    assert decision.cause.endswith("does not have the end of this one, which starts again empty")
    assert decision.facts["end_offset"] == [0, 100]


async def test_an_empty_log_begins_where_the_leaders_first_batch_does(me, leader) -> None:
    """The leader's log starts within it, as after DeleteRecords."""
    followed = me.follow()
    await me._truncater.reset_to(followed.log, 5, lambda: True)
    async with fetching(me, leader, followed):
        await leader.asked()
        sent = batch(4, b"a", b"b", b"c")
        leader.answer(row(records=sent, log_start_offset=5, high_watermark=7))
        await until(lambda: me.cuts == [4])
        # asked for offset 4 it would answer OFFSET_OUT_OF_RANGE, and so on for ever
        assert named(await leader.asked_about(0)) == [(0, 7)]
        assert followed.log.read(5, 1 << 20).read() == sent
        assert (followed.log.log_start_offset, followed.high_watermark) == (5, 7)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_a_partition_that_is_refused_pauses_and_is_asked_for_again(me, leader, error) -> None:
    """The leader may not have seen yet that it leads: no image will show when it has."""
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other):
        await leader.asked()
        leader.answer(row(error_code=error), row(1, records=batch(0, b"x")))
        asked = await leader.asked()
        assert (named(asked), forgotten(asked)) == ([(1, 1)], [0])
        assert asked.max_wait_ms <= 51  # no longer than the pause
        assert other.log.log_end_offset == 1
        leader.answer()
        await leader.asked_about(0)


async def test_a_fenced_partition_waits_for_the_next_leader_epoch(me, leader) -> None:
    followed = me.follow()
    async with fetching(me, leader, followed) as fetcher:
        await leader.asked()
        leader.answer(row(error_code=ErrorCode.FENCED_LEADER_EPOCH))
        await until(lambda: not fetcher._session)
        fetcher.remove(followed)
        fetcher.add(FollowerPartition(followed, LEADER, LeaderEpoch(6)))
        asked = await leader.asked()
        assert asked.topics[0].partitions[0].current_leader_epoch == 6


async def test_a_broken_connection_is_made_again_with_a_new_session(me, leader) -> None:
    followed = me.follow()
    async with fetching(me, leader, followed):
        await leader.asked()
        leader.answer()
        assert (await leader.asked()).session_id == SESSION
        leader.reply(leader.CLOSE)
        asked = await leader.asked()
        assert me.attempts == 2
        assert asked.session_epoch == 0
        assert named(asked) == [(0, 0)]


@pytest.mark.parametrize(
    "error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
async def test_a_lost_session_begins_again_at_once(me, leader, error) -> None:
    followed = me.follow()
    async with fetching(me, leader, followed):
        await leader.asked()
        leader.answer()
        await leader.asked()
        leader.answer(error_code=error, session_id=0)
        asked = await leader.asked()
        assert asked.session_epoch == 0
        assert named(asked) == [(0, 0)]


async def test_a_leader_that_cannot_be_reached_is_tried_again(me, leader, monkeypatch) -> None:
    monkeypatch.setattr(fetcher_module, "RECONNECT_S_MAX", 0.01)
    fetcher = ReplicaFetcher(me, LEADER)
    fetcher.add(me.follow())
    leader.port = 1
    task = asyncio.create_task(fetcher.run())
    await until(lambda: me.attempts > 2)
    async with leader.running():
        await leader.asked()
    task.cancel()
    await asyncio.wait([task])


async def test_a_leader_that_is_gone_is_not_connected_to_while_it_leads_nothing(
    me, leader, monkeypatch
) -> None:
    monkeypatch.setattr(fetcher_module, "RECONNECT_S_MAX", 0.01)
    followed = me.follow()
    async with fetching(me, leader, followed) as fetcher:
        await leader.asked()
        leader.reply(leader.CLOSE)
        fetcher.remove(followed)
        await until(lambda: not fetcher._changed.is_set())
        attempts = me.attempts
        fetcher.add(followed)
        assert named(await leader.asked()) == [(0, 0)]
        assert me.attempts == attempts + 1


async def test_damaged_records_are_not_appended(me, leader) -> None:
    followed = me.follow()
    async with fetching(me, leader, followed):
        await leader.asked()
        damaged = bytearray(batch(0, b"a"))
        damaged[-1] ^= 1
        leader.answer(row(records=bytes(damaged), high_watermark=1))
        await leader.asked_about(0)
        assert followed.log.log_end_offset == 0
        assert me.failed == []


async def test_an_answer_about_a_partition_that_its_request_did_not_name_changes_nothing(
    me, leader, monkeypatch
) -> None:
    """More are due than one request names, so the leader still goes by the offset before."""
    monkeypatch.setattr(reader_session, "NAMED_MAX", 1)
    one, other = me.follow(0), me.follow(1)
    records = row(records=batch(0, b"a"), high_watermark=1)
    async with fetching(me, leader, one, other):
        assert named(await leader.asked()) == [(0, 0)]
        leader.answer(records)
        assert named(await leader.asked()) == [(1, 0)]
        assert one.log.log_end_offset == 1
        leader.answer(records)
        asked = await leader.asked()
        assert (named(asked), forgotten(asked)) == ([(0, 1)], [])
        assert one.log.log_end_offset == 1
