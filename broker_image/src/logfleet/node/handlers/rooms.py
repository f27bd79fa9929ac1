"""The rooms of a broker that handlers are handed; each handler reads those that it needs."""

from dataclasses import dataclass

from logfleet.config.broker import BrokerConfig
from logfleet.controller.running.access import Origin
from logfleet.io.clock import Clock
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.node.control import Control
from logfleet.node.disks import Disks
from logfleet.node.dispatch import RequestContext, Requests
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.replication.room import Replication
from logfleet.node.transactions.room import Transactions
from logfleet.node.workers import Workers
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.sessions.cache import SessionCache
from logfleet.sessions.followers import FollowerFetches
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions
from logfleet.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Sessions:
    """What is kept of clients between their requests. parked: counts requests that wait."""

    fetches: SessionCache
    followers: FollowerFetches
    parked: ParkedCounts


@dataclass(frozen=True, slots=True)
class Rooms:
    """Open rooms. cluster_id: in Kafka's text form. metadata: has the newest image.

    partitions: the table of `hosting`.
    """

    config: BrokerConfig
    node_id: int
    cluster_id: str
    clock: Clock
    decisions: Decisions
    workers: Workers
    disks: Disks
    metadata: MetadataLoader
    partitions: PartitionTable
    hosting: Hosting
    throttle: ReplicationThrottle
    quotas: ClientQuotas
    replication: Replication
    control: Control
    coordinators: GroupCoordinators
    transactions: Transactions
    failsafe: Failsafe
    sessions: Sessions
    requests: Requests


def shard_of(rooms: Rooms, group_id: str) -> GroupShard | ErrorCode:
    """The coordinator of a group, or why this broker has none."""
    return rooms.coordinators.shard_of(group_id, rooms.metadata.image)


def origin_of(context: RequestContext) -> Origin:
    """The client of a request, as the controller is to know it."""
    return Origin(context.api_version, context.principal, context.client_id, context.peer.host)
