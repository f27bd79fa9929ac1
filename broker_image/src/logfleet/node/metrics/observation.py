"""Reports of a broker on its admin port: metrics, health, readiness."""

import errno
from typing import TYPE_CHECKING, Protocol

import structlog

from logfleet.config.broker import ADMIN_LISTENER, BrokerConfig, with_admin_port
from logfleet.log.compaction.cleaner import Cleaner
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import Endpoint as Address
from logfleet.node.cluster.membership import BrokerMembership
from logfleet.node.decisions.journal import Journal
from logfleet.node.disks import Disks
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.lifetime import Lifetime
from logfleet.node.listening import CannotListen, Listeners
from logfleet.node.metrics.cluster import cluster, readiness, store
from logfleet.node.metrics.connections import connections, fetch_sessions, throttled_clients
from logfleet.node.metrics.groups import GroupFigures
from logfleet.node.metrics.loop_lag import LoopLag
from logfleet.node.metrics.partitions import LATE_TRANSACTION_MS, logs, replication, topics
from logfleet.node.metrics.process import process
from logfleet.node.metrics.requests import requests
from logfleet.node.metrics.sources import Sources
from logfleet.node.metrics.storage import compaction
from logfleet.node.metrics.storage import disks as disk_families
from logfleet.node.metrics.traffic import TrafficWatch
from logfleet.node.metrics.transactions import transactions
from logfleet.telemetry import table
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.telemetry.exposition import single
from logfleet.telemetry.flows import Flows
from logfleet.telemetry.identity import identity

if TYPE_CHECKING:
    from logfleet.node.metrics.admin_http import AdminHttp

log = structlog.get_logger(__name__)


class Observed(Protocol):
    """The parts of a broker that the admin port reports from the start of the process on."""

    config: BrokerConfig
    decisions: Decisions

    @property
    def failure(self) -> str | None: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def image(self) -> ClusterImage: ...

    def not_ready(self) -> str | None:
        """Why clients may not be sent to this broker, None if they may."""


class Observation:
    """The broker's metrics and its admin port. sources: the metrics; more after the start.

    address: URL of the admin port, None if there is none. disks, journal: exist before the rooms.
    """

    address: str | None = None

    def __init__(self, broker: Observed, disks: Disks, journal: Journal) -> None:
        self.sources = Sources()
        self._flows = Flows()
        self._broker = broker
        self._lag = LoopLag(self._record_stall)
        self.sources.add(
            lambda: disk_families(disks.disk_space, disks.log_dirs),
            lambda: process(self._lag),
            lambda: [single(table.DECISIONS_DROPPED, journal.dropped)],
            lambda: readiness(broker.not_ready),
        )

    async def start(self, life: Lifetime) -> BrokerConfig:
        """Open the admin port, if one is configured, until the end. Raises CannotListen.

        Returns the configuration with the actual port.
        """
        self._lag.start()
        life.closing.callback(self._lag.stop)
        config = self._broker.config
        address = config.logfleet_admin_listener
        if address is None:
            return config
        from logfleet.node.metrics.admin_http import AdminHttp  # aiohttp takes 10 MiB

        broker = self._broker
        admin = AdminHttp(
            self.sources.text,
            health=lambda: broker.failure,
            readiness=broker.not_ready,
            decisions=broker.decisions,
            image=lambda: broker.image,
            traffic=self._flows.by_traffic,
            identity=lambda: identity(broker.cluster_id, broker.config.node_id),
        )
        life.closing.push_async_callback(admin.stop)
        port = await self._listen(admin, address)
        if port is not None:
            self.address = f"http://{address.host}:{port}"
        return config if port == address.port else with_admin_port(config, port)

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

    def report_all(
        self,
        rooms: Rooms,
        life: Lifetime,
        *,
        membership: BrokerMembership,
        listeners: Listeners,
        cleaner: Cleaner | None,
    ) -> None:
        """The rooms are open: watch traffic, and add the metrics of what they hold.

        cleaner: None if it is off.
        """
        partitions = rooms.partitions
        life.spawn("observation", TrafficWatch(partitions, self._flows).run())
        config, decisions = self._broker.config, self._broker.decisions
        series_max, isr_writer = config.logfleet_metrics_series_max, rooms.replication.isr_writer
        late_ms = config.transaction_max_timeout_ms + LATE_TRANSACTION_MS
        leadership, local = rooms.hosting.leadership, rooms.hosting.local

        def refused_writes() -> int:
            return isr_writer.refused + local.refused_writes + membership.refused.count

        self.sources.add(
            lambda: requests(lambda: rooms.requests.stats),
            lambda: connections(lambda: listeners.all),
            lambda: throttled_clients(rooms.quotas),
            lambda: fetch_sessions(rooms.sessions.fetches),
            lambda: topics(partitions, series_max),
            lambda: logs(partitions, series_max, rooms.clock.now_ms() - late_ms),
            lambda: replication(partitions, isr_writer, rooms.throttle),
            lambda: GroupFigures(
                rooms.coordinators.shards(), partitions, rooms.sessions.parked, series_max
            ).families(),
            lambda: transactions(rooms.transactions),
            lambda: cluster(rooms.metadata.image, rooms.control.controller, decisions),
            lambda: store(rooms.failsafe, leadership.suspended, refused_writes()),
            lambda: compaction(cleaner, rooms.disks.log_dirs),
        )
