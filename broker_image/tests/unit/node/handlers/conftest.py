from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.io.files import Files, PosixFiles
from logfleet.io.timers import TimerWheel
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.checkpoints.files import parse_offsets
from logfleet.log.config import LogConfig
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import LOG_STARTS, TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCE, BrokerValue, Endpoint, FenceValue
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    TOPIC,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import KeyValue
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.rooms import Sessions
from logfleet.node.partitions.leader_partition import FlushRule, LeaderPartition
from logfleet.node.partitions.log_moves import LogMoves
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.replication.leader import LeaderReplicas
from logfleet.sessions.cache import SessionCache
from logfleet.sessions.followers import FollowerFetches
from logfleet.telemetry.decisions import Decisions
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

from broker_image.tests.unit.node.handlers.producing.produce_rig import Side

NOW = 1_700_000_000_000


class Host:
    """A broker for handlers: partitions on a real disk, and an image that the test writes.

    It is most of its rooms (`logfleet.node.handlers.rooms.Rooms`) itself.
    now: the wall clock in ms. failed: partitions whose storage failed. threads: what ran in a
    thread.
    """

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.now = NOW
        self.node_id = 1
        self.cluster_id = "cluster"
        self.config = SimpleNamespace(
            node_id=1,
            fetch_max_bytes=55 * 1024 * 1024,
            replica_selector_class=None,
            logfleet_feature_level_max=TRANSACTIONS - 1,
            logfleet_replication_throttle_yields=False,
            replication_quota_window_num=11,
            alter_log_dirs_replication_quota_window_num=11,
            alter_log_dirs_replication_quota_window_size_seconds=1,
            replication_quota_window_size_seconds=1,
        )
        self.image = ClusterImage()
        self.partitions = PartitionTable(lambda: self.image)
        self.replication_throttle: Any = ReplicationThrottle(self.config, lambda: self.image)  # type: ignore[arg-type]
        self.follower_fetches = FollowerFetches()
        self.fetch_sessions = SessionCache(2, iter(range(100, 1000)).__next__)
        self.parked = ParkedCounts()
        self.decisions = Decisions(1, self.now_ms)
        self.failed: list[tuple[LeaderPartition, OSError]] = []
        self.threads: list[Any] = []
        files = files or PosixFiles()
        self._dir = LogDir(OpenFiles(files), str(path), "cluster", 1)
        self.log_dirs = LogDirs(OpenFiles(files), [self._dir])
        self._flusher = Flusher(files)
        self.checkpointer = Checkpointer(files, self._flusher)
        self.disk_space = DiskSpace(files, self._flusher, self.log_dirs, 0)
        self.log_moves = LogMoves(
            self.partitions,
            self.log_dirs,
            self._flusher,
            self.checkpointer,
            throttle=self.replication_throttle,
            disk_space=self.disk_space,
            on_disk_failure=lambda *_: None,
        )
        self._timers: TimerWheel | None = None
        self._revision = 0

    @property
    def clock(self) -> "Host":
        return self

    disks = hosting = metadata = replication = workers = clock

    @property
    def sessions(self) -> Sessions:
        return Sessions(self.fetch_sessions, self.follower_fetches, self.parked)

    @property
    def throttle(self) -> Any:
        return self.replication_throttle

    @property
    def timers(self) -> TimerWheel:
        if self._timers is None:
            self._timers = TimerWheel()
        return self._timers

    def now_ms(self) -> int:
        return self.now

    async def run_in_thread(self, work: Any, *args: object) -> Any:
        self.threads.append(work)
        return work(*args)

    def storage_failed(self, partition: LeaderPartition, error: OSError) -> None:
        self.failed.append((partition, error))

    def host(
        self,
        topic: str = "topic",
        index: int = 0,
        *,
        config: LogConfig | None = None,
        leader_epoch: int = 5,
        rule: FlushRule | None = None,
        replicas_state: LeaderReplicas | None = None,
    ) -> LeaderPartition:
        """A partition that this broker leads."""
        topic_id = topic_id_of(topic)
        name = TopicPartition(topic, index)
        log = self._dir.create(name, uuids.to_text(topic_id), config or LogConfig(), self.now)
        log.start_epoch(LeaderEpoch(leader_epoch))
        partition = LeaderPartition(
            topic,
            topic_id,
            index,
            log,
            LeaderEpoch(leader_epoch),
            rule=rule,
            replicas_state=replicas_state,
        )
        self.partitions.add(partition)
        return partition

    def host_held(self, topic: str = "topic") -> LeaderPartition:
        """One whose records wait for the disk."""
        return self.host(topic, config=LogConfig(flush_messages=1), rule=Held())

    def know_topic(self, topic: str, leaders: Mapping[int, int]) -> None:
        """The image says who leads the topic's partitions, each in epoch 9."""
        uuid = uuids.to_text(topic_id_of(topic))
        self.put(TOPIC.key(topic), TopicValue(uuid))
        for index, leader in leaders.items():
            value = PartitionValue(
                (leader,), ((leader, BrokerEpoch(3)),), leader, LeaderEpoch(9), PartitionEpoch(1), 1
            )
            self.put(PARTITION.key((uuids.from_text(uuid), index)), value)
        self.put(READY.key(uuids.from_text(uuid)), ReadyValue(len(leaders)))

    def know_broker(self, broker_id: int, host: str, port: int) -> None:
        listeners = (Endpoint("PLAINTEXT", host, port),)
        self.put(BROKER.key(broker_id), BrokerValue("i", listeners, "zone"))

    def know_active(self, broker_id: int) -> None:
        """The image says that the broker is there, and that the controller counts on it."""
        self.know_broker(broker_id, "host", 9092)
        epoch = self.image.brokers[broker_id].epoch
        self.put(FENCE.key(broker_id), FenceValue(epoch, ACTIVE))

    def put(self, key: str, value: object) -> None:
        self._revision += 1
        builder = ImageBuilder(self.image)
        builder.add(KeyValue(key, msgspec.json.encode(value), self._revision, self._revision, 1))
        self.image, _ = builder.build(self._revision)

    @staticmethod
    def context(version: int, client_id: str | None = "client") -> RequestContext:
        return RequestContext(Peer("PLAINTEXT"), version, client_id, 1)

    def log_starts_on_disk(self) -> dict[TopicPartition, int]:
        return parse_offsets(Path(self._dir.path, LOG_STARTS).read_bytes())

    def close(self) -> None:
        self._flusher.stop()
        self._dir.abandon()


class Held:
    """flush.messages with a slow disk: appends wait for `LeaderPartition.own_part_done`."""

    def appended(self, _partition: LeaderPartition) -> None:
        pass

    def flush(self, _: LeaderPartition) -> bool:
        return True


def topic_id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"-")[:16]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def sides(host: Host, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Two brokers that are asked the same; the second decodes every request."""
    other = Host(tmp_path / "other")
    yield Side(host, forgets=False), Side(other, forgets=True)
    other.close()
