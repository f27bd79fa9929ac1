"""Keeps a broker registered: carries out what the machine of its registration decides."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

import msgspec
import structlog

from logfleet.metadata.kinds.brokers import BrokerValue
from logfleet.metadata.store import Lease, StoreError
from logfleet.node.cluster.registration.events import (
    Accepted,
    Active,
    Effect,
    Event,
    Fail,
    Failed,
    GrantLease,
    ImageSeen,
    KeyRead,
    LeaseGranted,
    LeaseLost,
    LeaveAsked,
    Lost,
    MayStop,
    Read,
    Refused,
    Registered,
    Reply,
    Report,
    Request,
    Revoke,
    Revoked,
    Started,
    StopAsked,
    TimePassed,
    ValueChanged,
    Write,
    Written,
)
from logfleet.node.cluster.registration.machine import TAKEN_MS_MAX, BrokerRegistration
from logfleet.node.world import World
from logfleet.store.loader import MetadataLoader
from logfleet.store.refused_writes import RefusedWrites
from logfleet.types import BrokerEpoch

log = structlog.get_logger(__name__)

LEASE_TTL_S: Final = 3
"""Time for which a dead broker counts as alive. Kafka's broker.session.timeout.ms is 9 s."""


class Registration(msgspec.Struct, frozen=True):
    """A registration, which may have ended since. epoch: the broker epoch."""

    broker_id: int
    epoch: BrokerEpoch
    lease: Lease


class Registrar:
    """Keeps one broker registered for as long as `run` runs.

    on_registered, on_lost: called on the loop, in turns; between on_lost and the next on_registered
    the broker must lead nothing. on_active: called with the broker epoch when the controller has
    made a registration of this process active. By then no partition has the broker in its ISR, or
    as an eligible leader, for records that it may lack. None of them may raise. refused: updates of
    the registration that the store refused.
    """

    def __init__(
        self,
        world: World,
        follower: MetadataLoader,
        broker_id: int,
        value: BrokerValue,
        *,
        on_registered: Callable[[Registration], None],
        on_lost: Callable[[str], None],
        on_active: Callable[[BrokerEpoch], None] = lambda _: None,
        ttl_s: int = LEASE_TTL_S,
        taken_ms_max: int = TAKEN_MS_MAX,
    ) -> None:
        self._store, self._clock = world.store, world.clock
        self._follower = follower
        self._broker_id = broker_id
        self._machine = BrokerRegistration(broker_id, value, taken_ms_max=taken_ms_max)
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._on_active = on_active
        self._ttl_s = ttl_s
        self.refused = RefusedWrites(world.clock)
        self._registration: Registration | None = None
        self._leases: dict[int, Lease] = {}
        self._events: deque[Event] = deque()
        self._happened = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_running = False
        self._bug: BaseException | None = None
        self._may_stop: asyncio.Future[str] | None = None

    @property
    def registration(self) -> Registration | None:
        """The present registration, None while there is none."""
        return self._registration

    @property
    def epoch(self) -> BrokerEpoch:
        """The broker epoch of the last registration, 0 before the first."""
        return self._machine.epoch

    def update(self, **changes: Any) -> None:
        """Change these fields of BrokerValue from now on.

        A standing registration is rewritten, with the same epoch.
        """
        self._happen(ValueChanged(changes))

    async def leave(self, seconds_max: float) -> str:
        """Let other brokers take over the leaderships; stay registered until `unregister`.

        Returns why the broker may stop now, "" if it had nothing to announce.
        """
        if not self._is_running:
            return ""
        self._may_stop = asyncio.get_running_loop().create_future()
        self._happen(LeaveAsked(int(1000 * seconds_max)))
        return await self._may_stop

    async def run(self) -> None:
        """Register, and again whenever the registration is lost.

        Ends only by IdTaken, LevelTooHigh, StoreRefused, StoreReplaced.
        """
        images = self._follower.subscribe(self._happened)
        image_revision = 0
        self._is_running = True
        self._happen(Started())
        try:
            while self._bug is None:
                if images.image.revision > image_revision:
                    image_revision = images.image.revision
                    self._step(ImageSeen(images.image))
                while self._events:
                    self._step(self._events.popleft())
                await self._until_event()
            raise self._bug
        finally:
            self._is_running = False
            self._stop_waiting("")
            self._follower.unsubscribe(images)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def unregister(self) -> None:
        """Unregister now, not when the lease ends. Call it after `run` was cancelled.

        Nothing happens if not registered. A registration that was lost as the broker stopped counts
        too: its key may still be there.
        """
        self._registration = None
        for effect in self._machine.step(StopAsked(), self._clock.monotonic_ms()):
            if isinstance(effect, GrantLease | Read | Write | Revoke):
                self._step(await self._reply(effect))

    def _happen(self, event: Event) -> None:
        self._events.append(event)
        self._happened.set()

    async def _until_event(self) -> None:
        """Wait until something has happened, or an event is due."""
        due_ms = self._machine.due_ms
        delay_s = None if due_ms is None else (due_ms - self._clock.monotonic_ms()) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._happened.wait()
        if not self._happened.is_set():
            self._events.append(TimePassed())
        self._happened.clear()

    def _step(self, event: Event) -> None:
        for effect in self._machine.step(event, self._clock.monotonic_ms()):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case GrantLease() | Read() | Write() | Revoke():
                self._spawn(self._send(effect))
            case Registered(epoch, lease_id):
                lease = self._leases[lease_id]
                self._leases = {lease_id: lease}
                self._registration = Registration(self._broker_id, epoch, lease)
                self._spawn(self._watch(lease))
                self._on_registered(self._registration)
            case Lost(reason):
                self._registration = None
                self._on_lost(reason)
            case Active(epoch):
                self._on_active(epoch)
            case MayStop(cause):
                self._stop_waiting(cause)
            case Refused(key, error):
                self.refused.refused(key, error)
            case Accepted(key):
                self.refused.accepted(key)
            case Report(level, event, fields):
                getattr(log, level)(event, **fields)
            case Fail(error):
                raise error
            case _:
                assert_never(effect)

    def _stop_waiting(self, cause: str) -> None:
        if self._may_stop is not None and not self._may_stop.done():
            self._may_stop.set_result(cause)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._bug = error
            self._happened.set()

    async def _watch(self, lease: Lease) -> None:
        await lease.lost()
        self._happen(LeaseLost(lease.id))

    async def _send(self, request: Request) -> None:
        self._happen(await self._reply(request))

    async def _reply(self, request: Request) -> Reply:
        try:
            match request:
                case GrantLease(number):
                    lease = await self._store.grant_lease(self._ttl_s)
                    self._leases[lease.id] = lease
                    return LeaseGranted(number, lease.id)
                case Read(key, number):
                    return KeyRead(number, await self._store.get(key))
                case Write(txn, number):
                    return Written(number, await self._store.txn(txn))
                case Revoke(lease_id, number):
                    await self._leases[lease_id].revoke()
                    return Revoked(number)
                case _:
                    assert_never(request)
        except StoreError as error:
            return Failed(request.number, error)
