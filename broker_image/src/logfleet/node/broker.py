"""One broker: composes everything, starts it in order, and stops it in the reverse order.

Handlers get the Broker as their first argument; `node.handlers.host` lists what they use of it.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self, TypeVar

import msgspec
import structlog

from logfleet.client.connection import Connection
from logfleet.config.broker import BrokerConfig
from logfleet.config.dynamic import BrokerPart
from logfleet.config.topic import BrokerLayers
from logfleet.controller.running.access import ControllerAccess
from logfleet.controller.running.log_ends import LogEndsClient
from logfleet.controller.running.loop import ControllerLoop
from logfleet.io import descriptors
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer
from logfleet.io.files import Files, PosixFiles
from logfleet.io.tasks import cancel
from logfleet.io.timers import TimerWheel
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.directories.disk_failure import DiskFailure
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dir import LogDirRefused
from logfleet.log.directories.log_dirs import LogDirs, inspect_directories
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.recovery.truncater import Truncater
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import ControllerValue
from logfleet.metadata.keys import Endpoint as Address
from logfleet.metadata.store import MetadataStore, StoreError
from logfleet.net.connection_rules import ConnectionRules
from logfleet.net.listener import Listener
from logfleet.node.cluster.directory_record import DirectoryRecord
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.node.cluster.joining import join_cluster
from logfleet.node.cluster.membership import BrokerMembership, broker_value
from logfleet.node.cluster.own_data import refuse_data_without_identity, refuse_data_without_store
from logfleet.node.cluster.producer_id_pool import ProducerIdPool
from logfleet.node.cluster.registration.errors import RegistrationError
from logfleet.node.cluster.registration.registrar import Registration
from logfleet.node.cluster.silent_peers import SilentPeers
from logfleet.node.decisions.disks import RecordedDisks
from logfleet.node.decisions.journal import Journal
from logfleet.node.disks import Disks
from logfleet.node.dispatch import Dispatcher
from logfleet.node.dynamic_config import DynamicConfig
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.handlers import all_handlers
from logfleet.node.handlers.admin.routes import UNFENCED
from logfleet.node.handlers.admin.topics import create_one
from logfleet.node.handlers.host import WholeHost
from logfleet.node.handlers.metadata_creation import TopicCreator
from logfleet.node.listening import CannotListen, advertised, bind, listener_of
from logfleet.node.metrics.observation import Observation
from logfleet.node.partitions.deletions import Deletions
from logfleet.node.partitions.flush_rules import FlushRules
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.leadership import Leadership
from logfleet.node.partitions.local_partitions import LocalPartitions
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.log_moves import LogMoves
from logfleet.node.partitions.log_tasks import LogTasks
from logfleet.node.partitions.maintenance import Maintenance
from logfleet.node.partitions.missing_directories import MissingDirectories
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.node.partitions.strays import set_strays_aside
from logfleet.node.replication.isr_writer import IsrWriter
from logfleet.node.replication.replica_fetchers import ReplicaFetchers
from logfleet.node.world import World
from logfleet.quotas.client_quotas import quotas_of
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.sessions.cache import SessionCache
from logfleet.sessions.followers import FollowerFetches
from logfleet.store.loader import MetadataLoader
from logfleet.store.opening import open_store
from logfleet.telemetry.decisions import Decisions

log = structlog.get_logger(__name__)

T = TypeVar("T")

# How long requests in progress may take after SIGTERM before their connections are cut.
STOP_GRACE_S: Final = 10.0
# Threads for work that releases the interpreter lock: compression, reading ahead, offsets by time.
COMPUTE_THREADS: Final = 2
# How long the start waits until this broker leads its partitions, before it serves without them.
LEADING_S_MAX: Final = 10.0


class StartError(Exception):
    """The broker cannot start. The text is one line for a person: what is wrong, and where."""


class Broker:
    """A broker in this process; an asynchronous context manager that is serving inside.

    config: with the actual admin port. partitions: its replicas. timers: for parked requests.
    timer: kills the process, if only this broker runs in it. decisions: what it decided, and why.
    failure: why it ended by itself. Attributes that are only annotated here: set at the start.
    """

    cluster_id: str = ""
    store: MetadataStore
    world: World
    follower: MetadataLoader
    local: LocalPartitions
    leadership: Leadership
    following: Following
    controller: ControllerLoop
    controller_access: ControllerAccess
    topic_creator: TopicCreator
    producer_ids: ProducerIdPool
    coordinators: GroupCoordinators
    isr_writer: IsrWriter
    log_moves: LogMoves
    membership: BrokerMembership
    failsafe: Failsafe

    def __init__(
        self, config: BrokerConfig, files: Files | None = None, timer: DeadMansTimer = NO_TIMER
    ) -> None:
        self.config = config
        self._timer = timer
        self.node_id = config.node_id
        self.incarnation = str(uuid.uuid4())
        self.timers = TimerWheel()
        self.parked = ParkedCounts()
        self.fetch_sessions = SessionCache(
            config.max_incremental_fetch_session_cache_slots,
            # random, as any client that sends a session's id may use the session
            partial(random.SystemRandom().randrange, 1, 2**31),
        )
        self.follower_fetches = FollowerFetches()
        self.partitions = PartitionTable(lambda: self.image)
        self.dispatcher: Dispatcher[WholeHost] = Dispatcher(self, all_handlers(), UNFENCED)
        self.quotas = quotas_of(config)
        self.replication_throttle = ReplicationThrottle(config, lambda: self.image)
        self.failure: str | None = None
        self.decisions = Decisions(self.node_id, SYSTEM_CLOCK.now_ms)
        self._files = files or PosixFiles()
        self.journal = Journal(self.decisions, self._files)
        self._flusher = Flusher(self._files)
        self.checkpointer = Checkpointer(self._files, self._flusher)
        self._compute = ThreadPoolExecutor(COMPUTE_THREADS, thread_name_prefix="compute")
        self._descriptors = own = descriptors.own()
        self._log_dirs = LogDirs(OpenFiles(self._files, own.open_files), [])
        self.disk_space = DiskSpace(
            self._files, self._flusher, self._log_dirs, config.logfleet_disk_reserve_bytes
        )
        failure = DiskFailure(
            self._log_dirs,
            self.disk_space,
            take_offline=lambda logs: self.local.take_offline(logs),  # noqa: PLW0108  set later
            fail=self._fail,
        )
        self._disk_failed = RecordedDisks(self.decisions, failure, self._log_dirs, self.disk_space)
        self._log_dirs.open_files.on_write_failed = self._disk_failed.write_failed
        self._configs = LogConfigs(self.node_id, config.static)
        self._disks = Disks(
            config,
            self._log_dirs,
            self._flusher,
            self.checkpointer,
            disk_space=self.disk_space,
            recovery_threads=lambda: self._configs.recovery_threads(self.image),
            on_failure=self._fail,
        )
        self._listeners: list[Listener] = []
        self._connection_rules = ConnectionRules(config, self._listeners, own.connections)
        self._is_member = False
        self._stack = contextlib.AsyncExitStack()
        self._observation = Observation(self, lambda: self._listeners)
        self._ended = asyncio.Event()
        self._state = "starting"

    # --- for handlers

    @property
    def image(self) -> ClusterImage:
        """This broker's image of the cluster."""
        return self.follower.image

    @property
    def log_dirs(self) -> LogDirs:
        """The log directories that have not failed."""
        return self._log_dirs

    now_ms = staticmethod(SYSTEM_CLOCK.now_ms)

    async def run_in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Run something that takes long and releases the interpreter lock."""
        return await asyncio.get_running_loop().run_in_executor(self._compute, work, *args)

    def storage_failed(self, partition: Replica, error: OSError) -> None:
        """A log could not be written or read: see DiskFailure."""
        self._disk_failed(TopicPartition(partition.topic, partition.index), error)

    # --- life

    async def __aenter__(self) -> Self:
        """Start. Raises StartError; then nothing is left behind."""
        try:
            await self._start()
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, CannotListen | LogDirRefused | RegistrationError | StoreError):
                raise StartError(str(error)) from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop: hand over partitions, answer open requests, make everything durable, unregister."""
        if self.failure is None:
            await self.membership.leave()
        self._state = "stopping"
        log.info("broker_stopping", broker=self.node_id)
        await self._stack.aclose()
        log.info("broker_stopped", broker=self.node_id)

    def end(self) -> None:
        """Ask `until_ended` to return."""
        self._ended.set()

    async def until_ended(self) -> None:
        """Return when `end` was called or the broker cannot go on (see `failure`)."""
        await self._ended.wait()

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        log.critical("broker_failed", broker=self.node_id, reason=reason)
        self._ended.set()

    async def _start(self) -> None:
        for stop in (self._compute.shutdown, self._flusher.stop, self.timers.stop):
            self._stack.callback(stop)
        await self._observation.start(self._stack)
        addresses = await self._bind()
        on_disk = inspect_directories(self._files, self.config.log_dirs, self.node_id)
        refuse_data_without_store(self.config, on_disk)
        self.store = await open_store(self.config, self._timer)
        self.world = World(SYSTEM_CLOCK, self.store, Connection.connect)
        self._stack.push_async_callback(self.store.close)
        self._stack.push_async_callback(self._unregister)
        await refuse_data_without_identity(self.store, self.node_id, on_disk)
        level = self.config.logfleet_feature_level_max
        self.cluster_id = await join_cluster(
            self.store, on_disk.cluster_id, unreadable=on_disk.unreadable, level=level
        )
        self.follower = MetadataLoader(self.store, self.world.clock)
        await self._disks.open(self.cluster_id, self._stack)
        await self.journal.open(self._log_dirs.dirs[0].path)
        self._stack.push_async_callback(self.journal.close)
        self._spawn("decisions", self.journal.run(self._disk_failed.check))
        self._spawn("metadata", self.follower.run())
        image = await self.follower.until(lambda image: image.revision > 0)
        threads = self._configs.recovery_threads(image)
        configs_of = partial(self._configs.of, image)
        await self._log_dirs.load(configs_of, SYSTEM_CLOCK.now_ms(), threads)
        self._start_partitions()
        follow_quotas = self.quotas.follow(self.follower.subscribe(), self.dispatcher.measure)
        self._spawn("quotas", follow_quotas)
        self._start_failsafe()
        self._start_replication()
        self._start_control()
        self._start_coordinators()
        self._spawn("partitions", self.local.run())
        self._start_registration(addresses)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEADING_S_MAX):
                image = await self.follower.until(self.leadership.leads_its_own)
                await self.local.until_applied(image.revision)
        maintenance = self._start_maintenance()
        await self._start_dynamic_config(maintenance)
        await self._serve()

    def not_ready(self) -> str | None:
        """Why clients may not be sent here; None if it serves, is registered, and may lead."""
        if self._state != "serving":
            return self._state
        return self.membership.not_ready()

    async def _bind(self) -> tuple[Address, ...]:
        """Take the ports; return the addresses that clients get."""
        ports = {}
        for address in self.config.listeners:
            listener = listener_of(
                address,
                self.config,
                self.dispatcher,
                disk=self._compute,
                quotas=self._connection_rules.quotas,
                throttle=self.quotas.connection.charge,
            )
            ports[address.name] = await bind(listener, address)
            self._stack.push_async_callback(listener.stop, 0)
            self._listeners.append(listener)
        return advertised(self.config, ports)

    def _start_partitions(self) -> None:
        set_strays_aside(self._log_dirs, self.image, self.node_id)
        for path in self._log_dirs.failed:
            self.disk_space.drop(path)
        rules = FlushRules(self._flusher, self.timers, self._disk_failed)
        self._stack.push_async_callback(rules.close)
        logs = ReplicaLogs(
            self.node_id, self._log_dirs, self.partitions, self._flusher, self.checkpointer
        )
        record = DirectoryRecord(self.world, self.node_id, self._log_dirs.found_at_start())
        missing = MissingDirectories(self.node_id, record, logs, self.partitions.offline)
        missing.take_offline(self.image)
        self.leadership = Leadership(
            self.node_id, self.partitions, self._flusher, rules, self.config.replica_lag_time_max_ms
        )
        self.following = Following(self.node_id, self.partitions)
        self.local = LocalPartitions(
            self.follower,
            self.partitions,
            self._configs,
            logs=logs,
            leadership=self.leadership,
            following=self.following,
            deletions=Deletions(self.node_id, self.store, logs),
            missing=missing,
            on_disk_failure=self._disk_failed,
        )

    def _start_failsafe(self) -> None:
        listener = self.config.inter_broker_listener_name
        self.failsafe = Failsafe(
            self.partitions,
            self.leadership,
            self.local,
            followers=self.follower_fetches,
            peers=SilentPeers(self.node_id, listener, lambda: self.image),
            decisions=self.decisions,
        )
        self._spawn("failsafe", self.failsafe.run())

    def _start_replication(self) -> None:
        """Copy from leaders, and write the ISRs of what this broker leads."""
        self._truncater = Truncater(
            self._log_dirs, self._flusher, self.checkpointer, self._disk_failed
        )
        ReplicaFetchers(self, self.following, self._truncater, self._spawn)
        self.isr_writer = IsrWriter(
            self.store, self.follower, self.partitions, self.leadership, self.decisions
        )
        self._spawn("isr", self.isr_writer.run())

    def _start_control(self) -> None:
        """The controller, if this broker is elected, and the access to the controller."""
        me = ControllerValue(self.node_id, self.incarnation)
        query = LogEndsClient(self.config).query
        self.controller = ControllerLoop(
            self.store, self.follower, me, self.config.static, self.decisions, query_log_ends=query
        )
        self._spawn("controller", self.controller.run())
        until = self.local.until_applied
        self.controller_access = ControllerAccess(
            self.config, self.follower, self.controller, self.quotas.mutation, until_applied=until
        )
        self._stack.callback(self.controller_access.close)
        self.topic_creator = TopicCreator(self.controller_access)
        self._stack.push_async_callback(self.topic_creator.close)
        self.producer_ids = ProducerIdPool(self.store)
        self._spawn("producer ids", self.producer_ids.run())

    def _start_coordinators(self) -> None:
        self.coordinators = GroupCoordinators(
            self.config,
            clock=self.world.clock,
            create_topic=partial(create_one, self.controller_access),
            run_in_thread=self.run_in_thread,
            storage_failed=self.storage_failed,
            is_hosted=lambda *key: self.partitions.replica(*key) is not None,
        )
        runtime = self.coordinators.runtime
        self.following.on_followed.append(runtime.standby.followed)
        self._truncater.on_truncated.append(runtime.standby.truncated)
        self.leadership.on_led.append(runtime.led)
        self.leadership.on_lost.append(runtime.lost)
        self._spawn("coordinators", self.coordinators.run(self.follower.subscribe()))

    def _start_registration(self, addresses: tuple[Address, ...]) -> None:
        offline = self.partitions.offline
        value = broker_value(
            self.config, self._log_dirs, self.incarnation, addresses, offline=offline.by_topic()
        )
        self.membership = BrokerMembership(
            self.world,
            self.follower,
            self.controller,
            self.config,
            value=value,
            decisions=self.decisions,
            on_registered=self._registered,
            on_lost=self._unregistered,
            on_active=self._disks.settle,
        )
        self._is_member = True
        offline.on_change = lambda: self.membership.update(offline=offline.by_topic())
        self.membership.start(self._spawn)

    def _registered(self, registration: Registration) -> None:
        self.dispatcher.lease = self.failsafe.registered(registration.lease)
        self.local.registered(registration.epoch)

    def _unregistered(self) -> None:
        self.local.lost_registration()
        self.failsafe.unregistered()
        self.dispatcher.lease = None

    async def _unregister(self) -> None:
        if self._is_member:
            await self.membership.unregister()

    async def _start_dynamic_config(self, maintenance: Maintenance) -> None:
        updates = {
            BrokerPart.CONNECTIONS: self._connection_rules.update,
            BrokerPart.PRODUCERS: maintenance.update,
            BrokerPart.REPLICATION: self.replication_throttle.update,
        }
        dynamic = DynamicConfig(BrokerLayers(self.config.static), self.node_id, updates)
        subscription = self.follower.subscribe()
        await self._connection_rules.update(dynamic.layers)
        await self.replication_throttle.update(dynamic.layers)
        await dynamic.update(self.image)
        self._spawn("dynamic-config", dynamic.run(subscription))

    def _start_maintenance(self) -> Maintenance:
        tasks = LogTasks(
            self._files,
            self.config,
            table=self.partitions,
            log_dirs=self._log_dirs,
            flusher=self._flusher,
            checkpointer=self.checkpointer,
            disk_space=self.disk_space,
            throttle=self.replication_throttle,
            image=lambda: self.image,
            on_disk_failure=self._disk_failed,
        )
        self._stack.callback(self._disks.remember, self.partitions.high_watermarks)
        self.log_moves = tasks.log_moves
        if tasks.cleaner is not None:
            self.leadership.on_lost.append(tasks.cleaner.abort_round)
            self.following.on_unfollowed.append(tasks.cleaner.abort_round)
        tasks.start(self._spawn)
        self.replication_throttle.start(self._spawn, self.dispatcher.stats["Produce"])
        self._observation.report_all(tasks.cleaner, self._spawn)
        return tasks.maintenance

    async def _serve(self) -> None:
        for listener in self._listeners:
            await listener.serve()
            self._stack.push_async_callback(listener.stop, STOP_GRACE_S)
        self._state = "serving"
        log.info(
            "broker_started",
            broker=self.node_id,
            cluster=self.cluster_id,
            listeners=[f"{each.name}://{each.host}:{each.port}" for each in self._listeners],
            admin=self._observation.address,
            log_dirs=[log_dir.path for log_dir in self._log_dirs],
            partitions=len(self.partitions),
            descriptors=msgspec.structs.asdict(self._descriptors),
        )

    # --- failures

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something for as long as the broker lives; the broker cannot go on without it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        self._stack.push_async_callback(cancel, task)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, StoreError | RegistrationError):
            log.error("task_failed", task=task.get_name(), exc_info=error)
        self._fail(f"{task.get_name()}: {error}")
