"""Runs this broker as a candidate for controller: the shell of `controller.terms.candidate`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar, assert_never, cast

import structlog

from logfleet.controller.changes.election_writes import SETTLED_MS
from logfleet.controller.running.decisions import record_write
from logfleet.controller.running.log_ends import QueryLogEnds
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms import events
from logfleet.controller.terms.candidate import Candidate
from logfleet.controller.terms.operations import NotControllerError, Operation
from logfleet.controller.terms.term import HISTORY_MS, TermSettings
from logfleet.io.clock import monotonic_ms, now_ms
from logfleet.metadata.kinds.cluster import ControllerValue
from logfleet.metadata.store import Lease, MetadataStore
from logfleet.store.loader import MetadataLoader, Subscription
from logfleet.telemetry.decisions import Decisions
from logfleet.wire.refusal import Refusal

T = TypeVar("T")
log = structlog.get_logger()

LEASE_TTL_S: Final = 3
"""Time for which the key of a dead controller lives; brokers' registrations live as long."""


class ControllerLoop:
    """Campaigns for controller and, once elected, runs a term.

    incarnation: this process, as in its broker registration. static: its server.properties.
    query_log_ends: asks brokers how far their replicas' logs reach.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        value: ControllerValue,
        static: Mapping[str, str],
        decisions: Decisions,
        *,
        query_log_ends: QueryLogEnds,
        ttl_s: int = LEASE_TTL_S,
        history_s: float = HISTORY_MS / 1000,
        settled_s: float = SETTLED_MS / 1000,
    ) -> None:
        self.query_log_ends = query_log_ends
        self.decisions = decisions
        self._store = store
        self._follower = follower
        self._ttl_s = ttl_s
        settings = TermSettings(static, int(1000 * history_s), int(1000 * settled_s))
        self._candidate = Candidate(value, settings, follower.recent_brokers)
        self._published = asyncio.Event()
        self._subscription = Subscription(self._published)
        self._leases: dict[int, Lease] = {}
        self._requests: dict[int, asyncio.Future[object]] = {}
        self._requested = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._revoking: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] | None = None

    @property
    def is_controller(self) -> bool:
        return self._candidate.term is not None

    @property
    def failed_terms(self) -> int:
        """Terms that ended by a fault of the controller, not of the store."""
        return self._candidate.failed_terms

    async def submit(self, operation: Operation[T]) -> T | Refusal:
        """Commit an operation as the controller, and return its answer.

        Raises NotControllerError.
        """
        if not self.is_controller:
            raise NotControllerError
        self._requested += 1
        number = self._requested
        future = self._requests[number] = asyncio.get_running_loop().create_future()
        self._step(events.OperationRequested(number, cast("Operation[object]", operation)))
        try:
            return cast("T | Refusal", await future)
        finally:
            if self._requests.pop(number, None) is not None:
                self._step(events.OperationWithdrawn(number))

    async def run(self) -> None:
        """Campaign, run a term, campaign again. Raises StoreReplaced. Cancelled, it resigns."""
        self._failed = asyncio.get_running_loop().create_future()
        self._subscription = self._follower.subscribe(self._published)
        self._begin(self._watch())
        try:
            await self._failed
        finally:
            self._step(events.Stopped())
            for task in self._tasks - {self._revoking}:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for future in self._requests.values():  # none, unless the machine has a fault
                future.cancel()
            self._follower.unsubscribe(self._subscription)

    async def _watch(self) -> None:
        while True:
            await self._published.wait()
            self._published.clear()
            self._step()

    def _step(self, *later: events.Event) -> None:
        """Step the newest image, then what else has happened."""
        try:
            image, changes = self._subscription.take()
            if image is not self._candidate.image:
                self._do_all(events.ImagePublished(image, changes))
            for event in later:
                self._do_all(event)
        except Exception as error:  # noqa: BLE001  a fault of the machine ends the broker, as that of any task
            self._fail(error)

    def _do_all(self, event: events.Event) -> None:
        for effect in self._candidate.step(event, events.Now(monotonic_ms(), now_ms())):
            self._do(effect)

    def _do(self, effect: to_do.Effect) -> None:
        match effect:
            case to_do.Write(number, txn):
                self._call(partial(self._store.txn, txn), partial(events.WriteAnswered, number))
            case to_do.GrantLease():
                self._call(self._grant, events.LeaseGranted)
            case to_do.RevokeLease(lease):
                revoke = self._leases.pop(lease).revoke
                self._revoking = self._call(revoke, partial(events.LeaseRevoked, lease))
            case to_do.ReadReceipts(epoch, prefix):
                read = partial(self._store.range, prefix)
                self._call(read, partial(events.ReceiptsRead, epoch))
            case to_do.Compact(epoch, revision):
                compact = partial(self._store.compact, revision)
                self._call(compact, partial(events.Compacted, epoch))
            case to_do.QueryLogEnds(epoch, number, image, asked):
                then = partial(events.LogEndsReported, epoch, number)
                self._call(partial(self.query_log_ends, image, asked), then)
            case to_do.WakeAt(ms):
                self._wake_at(ms)
            case to_do.Yield():
                asyncio.get_running_loop().call_soon(self._step, events.TurnCame())
            case to_do.Answer(number, answer):
                if (future := self._requests.pop(number, None)) and not future.done():
                    future.set_result(answer)
            case to_do.NotController(number):
                if (future := self._requests.pop(number, None)) and not future.done():
                    future.set_exception(NotControllerError())
            case to_do.Committed(image, txn, cause):
                record_write(self.decisions, image, txn, cause)
            case to_do.Record(decision):
                self.decisions.record(decision)
            case to_do.Report(level, event, facts, error):
                getattr(log, level)(event, **facts, **({"exc_info": error} if error else {}))
            case to_do.Fail(error):
                self._fail(error)
            case _:
                assert_never(effect)

    def _call(
        self, work: Callable[[], Awaitable[T]], then: Callable[[T | Exception], events.Event]
    ) -> asyncio.Task[None]:
        """Step what comes of it, or what it fails with. A cancelled call may not have begun."""

        async def called() -> None:
            try:
                outcome: T | Exception = await work()
            except Exception as error:  # noqa: BLE001  the machine decides what follows from it
                outcome = error
            self._step(then(outcome))

        return self._begin(called())

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _grant(self) -> int:
        lease = await self._store.grant_lease(self._ttl_s)
        self._leases[lease.id] = lease
        self._begin(self._until_lost(lease))
        return lease.id

    async def _until_lost(self, lease: Lease) -> None:
        await lease.lost()
        self._step(events.LeaseLost(lease.id))

    def _wake_at(self, ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if ms is not None:
            seconds = max(ms - monotonic_ms(), 0) / 1000
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._step, events.TimePassed())

    def _fail(self, error: Exception) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
