"""Protocols for the parts of the broker that handlers need, by the rooms of the node.

A broker implements all of it; handlers import only these protocols.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from logfleet.config.broker import BrokerConfig
from logfleet.controller.running.access import ControllerAccess, Origin
from logfleet.io.timers import TimerWheel
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.metadata.image import ClusterImage
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.node.cluster.producer_id_pool import ProducerIdPool
from logfleet.node.dispatch import Dispatcher, RequestContext
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.handlers.metadata_creation import TopicCreator
from logfleet.node.partitions.log_moves import LogMoves
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.node.replication.isr_writer import IsrWriter
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.sessions.cache import SessionCache
from logfleet.sessions.followers import FollowerFetches
from logfleet.telemetry.decisions import Decisions
from logfleet.wire.errors import ErrorCode

T = TypeVar("T")


class Host(Protocol):
    """The parts of the broker that every handler needs.

    image: the newest one. cluster_id: in Kafka's text form.
    """

    @property
    def node_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def image(self) -> ClusterImage: ...
    @property
    def dispatcher(self) -> Dispatcher[Any]: ...


class PartitionHost(Host, Protocol):
    """The parts of the broker that the handlers of records and logs need."""

    @property
    def partitions(self) -> PartitionTable: ...
    @property
    def log_dirs(self) -> LogDirs: ...
    @property
    def log_moves(self) -> LogMoves: ...
    @property
    def checkpointer(self) -> Checkpointer: ...
    @property
    def disk_space(self) -> DiskSpace: ...
    @property
    def timers(self) -> TimerWheel: ...
    @property
    def parked(self) -> ParkedCounts: ...
    @property
    def fetch_sessions(self) -> SessionCache: ...
    @property
    def follower_fetches(self) -> FollowerFetches: ...
    @property
    def isr_writer(self) -> IsrWriter: ...
    @property
    def replication_throttle(self) -> ReplicationThrottle: ...
    @property
    def decisions(self) -> Decisions: ...

    def now_ms(self) -> int:
        """The wall clock."""

    async def run_in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Run something that takes long and releases the interpreter lock."""

    def storage_failed(self, partition: Replica, error: OSError) -> None:
        """Report that a log could not be written or read."""


class GroupHost(Host, Protocol):
    """The parts of the broker that the handlers of groups and offsets need."""

    @property
    def partitions(self) -> PartitionTable: ...
    @property
    def coordinators(self) -> GroupCoordinators: ...


class AdminHost(Host, Protocol):
    """The parts of the broker that the handlers of administration and metadata need."""

    @property
    def controller_access(self) -> ControllerAccess: ...
    @property
    def topic_creator(self) -> TopicCreator: ...
    @property
    def producer_ids(self) -> ProducerIdPool: ...
    @property
    def failsafe(self) -> Failsafe: ...


class WholeHost(PartitionHost, GroupHost, AdminHost, Protocol):
    """The parts of the broker that all handlers together need."""


def shard_of(broker: GroupHost, group_id: str) -> GroupShard | ErrorCode:
    """The coordinator of a group, or why this broker has none."""
    return broker.coordinators.shard_of(group_id, broker.image)


def origin_of(context: RequestContext) -> Origin:
    """The client of a request, as the controller is to know it."""
    return Origin(context.api_version, context.principal, context.client_id, context.peer.host)
