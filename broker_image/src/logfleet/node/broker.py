"""One broker: opens its rooms in order, and closes them in the reverse order.

A room is one part of the broker: a class or a frozen value with what other rooms and handlers may
use of it. Its `open_...` takes the world, the configuration, the Lifetime and the rooms that it
needs; it starts the room's tasks, registers its closing at the Lifetime and returns the room. So a
room is whole as soon as it exists. `Broker._start` is the list of them:

1. workers, disks (no directory is open yet), admin port, ports for clients
2. stored metadata: the store is open, and this broker has joined its cluster
3. the directories, the journal of decisions, the image, the logs
4. hosting, failsafe, replication, control, coordinators, transactions: with the rooms before them,
   these are what handlers are handed (`node.handlers.rooms.Rooms`)
5. membership: this broker registers, and leads its partitions
6. log tasks, listeners, dynamic configuration: clients are served

Nobody sets an attribute of a room after it was opened. An earlier room offers events instead, lists
of callbacks called `on_...`, to which a later room subscribes as it opens. The end of the
registration is one of them: it is due after all rooms have closed and before the store closes.
"""

import asyncio
import contextlib
import random
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import msgspec
import structlog

from logfleet.config.broker import BrokerConfig
from logfleet.config.dynamic import BrokerPart
from logfleet.config.topic import BrokerLayers
from logfleet.io import descriptors
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer
from logfleet.io.files import Files, PosixFiles
from logfleet.log.directories.log_dir import LogDirRefused
from logfleet.log.directories.log_dirs import inspect_directories
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.store import StoreError
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.node.cluster.membership import BrokerMembership
from logfleet.node.cluster.registration.errors import RegistrationError
from logfleet.node.cluster.room import open_failsafe, open_membership
from logfleet.node.cluster.stored_metadata import StoredMetadata, open_metadata
from logfleet.node.control import Control, open_control
from logfleet.node.decisions.journal import Journal
from logfleet.node.disks import Disks
from logfleet.node.dispatch import Dispatcher, Handlers, Requests
from logfleet.node.dynamic_config import DynamicConfig
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.groups.room import open_coordinators
from logfleet.node.handlers import all_handlers
from logfleet.node.handlers.admin.routes import UNFENCED
from logfleet.node.handlers.admin.topics import create_one
from logfleet.node.handlers.rooms import Rooms, Sessions
from logfleet.node.lifetime import Lifetime
from logfleet.node.listening import CannotListen, Listeners, advertised, listeners_on, open_ports
from logfleet.node.metrics.observation import Observation
from logfleet.node.partitions.hosting import Hosting, open_hosting
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.log_tasks import LogTasks, open_log_tasks
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.replication.room import Replication, open_replication
from logfleet.node.transactions.room import Transactions, open_transactions
from logfleet.node.workers import Workers, open_workers
from logfleet.quotas.client_quotas import ClientQuotas, quotas_of
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.sessions.cache import SessionCache
from logfleet.sessions.followers import FollowerFetches
from logfleet.store.loader import MetadataLoader
from logfleet.store.opening import OpenStore, open_store
from logfleet.telemetry.decisions import Decisions

log = structlog.get_logger(__name__)

LEADING_S_MAX: Final = 10.0
"""How long the start waits until this broker leads its partitions, before it serves without."""


class StartError(Exception):
    """The broker cannot start. The text is one line for a person: what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A broker that serves: its rooms, and what no handler is handed."""

    rooms: Rooms
    stored: StoredMetadata
    dispatcher: Dispatcher[Rooms]
    membership: BrokerMembership
    tasks: LogTasks
    listeners: Listeners
    observation: Observation


class Broker:
    """A broker in this process; an asynchronous context manager that is serving inside.

    config: with the actual admin port. timer: kills the process, if only this broker runs in it.
    open_store: opens the metadata store that the configuration names. handlers: of all APIs; None
    for those of this version. decisions: what it decided, and why. cluster_id: empty until the
    broker has joined it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        files: Files | None = None,
        timer: DeadMansTimer = NO_TIMER,
        *,
        open_store: OpenStore = open_store,
        handlers: Handlers[Rooms] | None = None,
    ) -> None:
        self.config = config
        self.cluster_id = ""
        self.decisions = Decisions(config.node_id, SYSTEM_CLOCK.now_ms)
        self.life = Lifetime(config.node_id)
        self._timer = timer
        self._open_store = open_store
        self._files = files or PosixFiles()
        self._handlers = all_handlers() if handlers is None else handlers
        self._incarnation = str(uuid.uuid4())
        self._state = "starting"
        self._opened: Opened | None = None

    @property
    def opened(self) -> Opened:
        """What is open, while the broker serves."""
        assert self._opened is not None, "the broker has not started"
        return self._opened

    @property
    def rooms(self) -> Rooms:
        """The rooms that handlers are handed, while the broker serves."""
        return self.opened.rooms

    @property
    def image(self) -> ClusterImage:
        """This broker's image of the cluster, while the broker serves."""
        return self.rooms.metadata.image

    @property
    def failure(self) -> str | None:
        """Why the broker ended by itself, None if it did not."""
        return self.life.failure

    async def __aenter__(self) -> Self:
        """Start. Raises StartError; then nothing is left behind."""
        try:
            self._opened = await self._start()
        except BaseException as error:
            await self.life.closing.aclose()
            if isinstance(error, CannotListen | LogDirRefused | RegistrationError | StoreError):
                raise StartError(str(error)) from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop: hand over partitions, answer open requests, make everything durable, unregister."""
        if self.failure is None:
            await self.opened.membership.leave()
        self._state = "stopping"
        log.info("broker_stopping", broker=self.config.node_id)
        await self.life.closing.aclose()
        log.info("broker_stopped", broker=self.config.node_id)

    def end(self) -> None:
        """Ask `until_ended` to return."""
        self.life.end()

    async def until_ended(self) -> None:
        """Return when `end` was called or the broker cannot go on (see `failure`)."""
        await self.life.until_ended()

    def not_ready(self) -> str | None:
        """Why clients may not be sent here; None if it serves, is registered, and may lead."""
        if self._opened is None or self._state != "serving":
            return self._state
        return self._opened.membership.not_ready()

    async def _start(self) -> Opened:
        life, own = self.life, descriptors.own()
        workers = open_workers(self._files, life)
        disks = Disks(
            self.config,
            self._files,
            workers.flusher,
            self.decisions,
            life,
            open_files_max=own.open_files,
        )
        journal = Journal(self.decisions, self._files)
        observation = Observation(self, disks, journal)
        config = self.config = await observation.start(life)
        ports = await open_ports(config, life)
        on_disk = inspect_directories(self._files, config.log_dirs, config.node_id)
        stored = await open_metadata(config, life, on_disk, self._timer, self._open_store)
        self.cluster_id = stored.cluster_id
        configs = await self._load(stored, disks, journal)
        rooms = self._open_rooms(stored, configs, workers, disks)
        dispatcher = Dispatcher(rooms, self._handlers, UNFENCED, rooms.requests)
        quotas = rooms.quotas
        life.spawn("quotas", quotas.follow(stored.loader.subscribe(), dispatcher.measure))
        life.spawn("partitions", rooms.hosting.local.run())
        membership = open_membership(
            stored,
            config,
            life,
            incarnation=self._incarnation,
            addresses=advertised(config, ports),
            controller=rooms.control.controller,
            disks=disks,
            hosting=rooms.hosting,
            failsafe=rooms.failsafe,
            dispatcher=dispatcher,
            decisions=self.decisions,
        )
        await self._until_leading(rooms)
        tasks = open_log_tasks(
            self._files, config, life, metadata=stored.loader, disks=disks, hosting=rooms.hosting
        )
        rooms.throttle.start(life.spawn, rooms.requests.stats["Produce"])
        listeners = listeners_on(
            ports,
            dispatcher,
            config,
            disk=workers.compute,
            throttle=quotas.connection.charge,
            connections_max=own.connections,
        )
        observation.report_all(
            rooms, life, membership=membership, listeners=listeners, cleaner=tasks.cleaner
        )
        await self._follow_config(rooms, listeners, tasks)
        await listeners.serve(life)
        self._state = "serving"
        opened = Opened(rooms, stored, dispatcher, membership, tasks, listeners, observation)
        self._log_start(opened, own)
        return opened

    async def _load(self, stored: StoredMetadata, disks: Disks, journal: Journal) -> LogConfigs:
        """Open the disks, follow the image, and load the logs with its configuration."""
        life, metadata = self.life, stored.loader
        configs = LogConfigs(self.config.node_id, self.config.static)
        await disks.open(stored.cluster_id, lambda: configs.recovery_threads(metadata.image))
        await journal.open(disks.log_dirs.dirs[0].path)
        life.closing.push_async_callback(journal.close)
        life.spawn("decisions", journal.run(disks.failed.check))
        life.spawn("metadata", metadata.run())
        image = await metadata.until(lambda image: image.revision > 0)
        threads = configs.recovery_threads(image)
        await disks.log_dirs.load(partial(configs.of, image), stored.world.clock.now_ms(), threads)
        return configs

    def _open_rooms(
        self, stored: StoredMetadata, configs: LogConfigs, workers: Workers, disks: Disks
    ) -> Rooms:
        """The rooms that handlers are handed."""
        world, config, life, metadata = stored.world, self.config, self.life, stored.loader
        decisions, quotas = self.decisions, quotas_of(config)
        throttle = ReplicationThrottle(config, lambda: metadata.image)
        sessions = sessions_of(config)
        hosting = open_hosting(
            world,
            config,
            life,
            metadata=metadata,
            configs=configs,
            disks=disks,
            workers=workers,
            throttle=throttle,
        )
        failsafe = self._open_failsafe(metadata, hosting, sessions)
        replication = open_replication(
            world,
            config,
            life,
            metadata=metadata,
            disks=disks,
            hosting=hosting,
            throttle=throttle,
            decisions=decisions,
        )
        control = self._open_control(stored, quotas, hosting)
        groups, transactions = self._open_coordinators(
            stored,
            workers,
            disks=disks,
            hosting=hosting,
            replication=replication,
            control=control,
            failsafe=failsafe,
        )
        return Rooms(
            config=config,
            node_id=config.node_id,
            cluster_id=stored.cluster_id,
            clock=world.clock,
            decisions=decisions,
            workers=workers,
            disks=disks,
            metadata=metadata,
            partitions=hosting.table,
            hosting=hosting,
            throttle=throttle,
            quotas=quotas,
            replication=replication,
            control=control,
            coordinators=groups,
            transactions=transactions,
            failsafe=failsafe,
            sessions=sessions,
            requests=Requests(self._handlers),
        )

    def _open_failsafe(
        self, metadata: MetadataLoader, hosting: Hosting, sessions: Sessions
    ) -> Failsafe:
        return open_failsafe(
            self.config,
            self.life,
            metadata=metadata,
            hosting=hosting,
            followers=sessions.followers,
            decisions=self.decisions,
        )

    def _open_control(
        self, stored: StoredMetadata, quotas: ClientQuotas, hosting: Hosting
    ) -> Control:
        return open_control(
            stored.world,
            self.config,
            self.life,
            incarnation=self._incarnation,
            metadata=stored.loader,
            quotas=quotas,
            until_applied=hosting.local.until_applied,
            create_one=create_one,
            decisions=self.decisions,
        )

    def _open_coordinators(
        self,
        stored: StoredMetadata,
        workers: Workers,
        *,
        disks: Disks,
        hosting: Hosting,
        replication: Replication,
        control: Control,
        failsafe: Failsafe,
    ) -> tuple[GroupCoordinators, Transactions]:
        create_topic = partial(create_one, control.access)
        groups = open_coordinators(
            stored.world,
            self.config,
            self.life,
            metadata=stored.loader,
            workers=workers,
            disks=disks,
            hosting=hosting,
            replication=replication,
            create_topic=create_topic,
        )
        transactions = open_transactions(
            stored.world,
            self.config,
            self.life,
            metadata=stored.loader,
            workers=workers,
            disks=disks,
            hosting=hosting,
            replication=replication,
            groups=groups,
            lease=lambda: failsafe.tenure,
            decisions=self.decisions,
            create_topic=create_topic,
            take_producer_id=control.producer_ids.take,
        )
        return groups, transactions

    async def _until_leading(self, rooms: Rooms) -> None:
        """Wait until this broker leads what it alone can lead, for LEADING_S_MAX at most."""
        hosting = rooms.hosting
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEADING_S_MAX):
                image = await rooms.metadata.until(hosting.leadership.leads_its_own)
                await hosting.local.until_applied(image.revision)

    async def _follow_config(self, rooms: Rooms, listeners: Listeners, tasks: LogTasks) -> None:
        """Apply the broker's configuration in the store, and then its changes."""
        updates = {
            BrokerPart.CONNECTIONS: listeners.rules.update,
            BrokerPart.PRODUCERS: tasks.maintenance.update,
            BrokerPart.REPLICATION: rooms.throttle.update,
        }
        dynamic = DynamicConfig(BrokerLayers(self.config.static), self.config.node_id, updates)
        subscription = rooms.metadata.subscribe()
        await listeners.rules.update(dynamic.layers)
        await rooms.throttle.update(dynamic.layers)
        await dynamic.update(rooms.metadata.image)
        self.life.spawn("dynamic-config", dynamic.run(subscription))

    def _log_start(self, opened: Opened, own: descriptors.Descriptors) -> None:
        log_dirs = opened.rooms.disks.log_dirs
        log.info(
            "broker_started",
            broker=self.config.node_id,
            cluster=self.cluster_id,
            listeners=[f"{each.name}://{each.host}:{each.port}" for each in opened.listeners.all],
            admin=opened.observation.address,
            log_dirs=[log_dir.path for log_dir in log_dirs],
            partitions=len(opened.rooms.partitions),
            descriptors=msgspec.structs.asdict(own),
        )


def sessions_of(config: BrokerConfig) -> Sessions:
    """No client has one yet."""
    # random, as any client that sends a session's id may use the session
    new_id = partial(random.SystemRandom().randrange, 1, 2**31)
    fetches = SessionCache(config.max_incremental_fetch_session_cache_slots, new_id)
    return Sessions(fetches, FollowerFetches(), ParkedCounts())
