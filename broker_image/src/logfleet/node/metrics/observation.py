"""Reports of a broker on its admin port: metrics, health, readiness."""

import errno
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from logfleet.config.broker import ADMIN_LISTENER, BrokerConfig, with_admin_port
from logfleet.controller.running.loop import ControllerLoop
from logfleet.log.compaction.cleaner import Cleaner
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import Endpoint as Address
from logfleet.net.listener import Listener
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.node.cluster.membership import BrokerMembership
from logfleet.node.decisions.journal import Journal
from logfleet.node.dispatch import Dispatcher
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.listening import CannotListen
from logfleet.node.metrics.cluster import cluster, readiness, store
from logfleet.node.metrics.connections import connections, fetch_sessions, throttled_clients
from logfleet.node.metrics.groups import GroupFigures
from logfleet.node.metrics.loop_lag import LoopLag
from logfleet.node.metrics.partitions import logs, replication, topics
from logfleet.node.metrics.process import process
from logfleet.node.metrics.requests import requests
from logfleet.node.metrics.sources import Sources
from logfleet.node.metrics.storage import compaction, disks
from logfleet.node.metrics.traffic import TrafficWatch
from logfleet.node.partitions.leadership import Leadership
from logfleet.node.partitions.local_partitions import LocalPartitions
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.replication.isr_writer import IsrWriter
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.quotas.replication_throttle import ReplicationThrottle, Spawn
from logfleet.sessions.cache import SessionCache
from logfleet.telemetry import table
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.telemetry.exposition import single
from logfleet.telemetry.identity import identity

if TYPE_CHECKING:
    from logfleet.node.metrics.admin_http import AdminHttp

log = structlog.get_logger(__name__)


class Observed(Protocol):
    """The parts of a broker that are reported. The second half exists once it has started."""

    config: BrokerConfig
    cluster_id: str
    decisions: Decisions
    journal: Journal
    partitions: PartitionTable
    quotas: ClientQuotas
    replication_throttle: ReplicationThrottle
    disk_space: DiskSpace
    fetch_sessions: SessionCache
    parked: ParkedCounts
    failure: str | None

    controller: ControllerLoop
    coordinators: GroupCoordinators
    isr_writer: IsrWriter
    leadership: Leadership
    local: LocalPartitions
    membership: BrokerMembership
    failsafe: Failsafe

    @property
    def dispatcher(self) -> Dispatcher[Any]: ...
    @property
    def log_dirs(self) -> LogDirs: ...
    @property
    def image(self) -> ClusterImage: ...

    def not_ready(self) -> str | None:
        """Why clients may not be sent to this broker, None if they may."""


class Observation:
    """The broker's metrics and its admin port. sources: the metrics; more after the start.

    address: URL of the admin port, None if there is none.
    """

    address: str | None = None

    def __init__(self, broker: Observed, listeners: Callable[[], Iterable[Listener]]) -> None:
        self.sources = Sources()
        self._traffic = TrafficWatch(broker.partitions)
        self._broker = broker
        self._lag = LoopLag(self._record_stall)
        self.sources.add(
            lambda: requests(lambda: broker.dispatcher.stats),
            lambda: connections(listeners),
            lambda: throttled_clients(broker.quotas),
            lambda: fetch_sessions(broker.fetch_sessions),
            lambda: disks(broker.disk_space, broker.log_dirs),
            lambda: process(self._lag),
            lambda: [single(table.DECISIONS_DROPPED, broker.journal.dropped)],
            lambda: readiness(broker.not_ready),
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Open the admin port, if one is configured; `stack` closes it. Raises CannotListen."""
        self._lag.start()
        stack.callback(self._lag.stop)
        address = self._broker.config.logfleet_admin_listener
        if address is None:
            return
        from logfleet.node.metrics.admin_http import AdminHttp  # aiohttp takes 10 MiB

        broker = self._broker
        admin = AdminHttp(
            self.sources.text,
            health=lambda: broker.failure,
            readiness=broker.not_ready,
            decisions=broker.decisions,
            image=lambda: broker.image,
            traffic=self._traffic.flows,
            identity=lambda: identity(broker.cluster_id, broker.config.node_id),
        )
        stack.push_async_callback(admin.stop)
        port = await self._listen(admin, address)
        if port != address.port:
            broker.config = with_admin_port(broker.config, port)
        if port is not None:
            self.address = f"http://{address.host}:{port}"

    async def _listen(self, admin: "AdminHttp", address: Address) -> int | None:
        """Listen; return the port, None if there is none. Raises CannotListen.

        A default port that is in use, or that a listener of this broker is to have, is replaced by
        a free one: so a second broker on a laptop starts like the first. If no default port is
        possible, as without 127.0.0.1, there is none. A port that the configuration names is never
        replaced.
        """
        config = self._broker.config
        is_default = ADMIN_LISTENER not in config.static
        if is_default and address.port in {each.port for each in config.listeners}:
            return await admin.start(address.host, 0)
        try:
            return await admin.start(address.host, address.port)
        except OSError as error:
            if not is_default:
                raise CannotListen(ADMIN_LISTENER, address, error) from error
            if error.errno != errno.EADDRINUSE:
                log.warning("no_admin_port", reason=str(error))
                return None
        return await admin.start(address.host, 0)

    def _record_stall(self, seconds: float) -> None:
        cause = f"a step of the loop takes {seconds:.1f} s; no request is answered meanwhile"
        broker_id, facts = self._broker.config.node_id, {"seconds": round(seconds, 3)}
        self._broker.decisions.record(Decision(Kind.STALL, cause, broker=broker_id, facts=facts))

    def report_all(self, cleaner: Cleaner | None, spawn: Spawn) -> None:
        """The broker has started: watch traffic, and add the metrics of what it holds now.

        cleaner: None if it is off.
        """
        spawn("observation", self._traffic.run())
        broker = self._broker
        series_max = broker.config.logfleet_metrics_series_max
        self.sources.add(
            lambda: topics(broker.partitions, series_max),
            lambda: logs(broker.partitions, series_max),
            lambda: replication(broker.partitions, broker.isr_writer, broker.replication_throttle),
            lambda: GroupFigures(
                broker.coordinators.shards(), broker.partitions, broker.parked, series_max
            ).families(),
            lambda: cluster(broker.image, broker.controller, broker.decisions),
            lambda: store(broker.failsafe, broker.leadership.suspended, _refused_writes(broker)),
            lambda: compaction(cleaner, broker.log_dirs),
        )


def _refused_writes(broker: Observed) -> int:
    return broker.isr_writer.refused + broker.local.refused_writes + broker.membership.refused.count
