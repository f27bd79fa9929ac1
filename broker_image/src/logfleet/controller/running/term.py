"""One term: a broker's work from its election as controller until it is replaced.

Whenever the image has changed, one worker converges the cluster (fences, elections, half-made
topics); in between it runs the admin operations one at a time, each decided on an image that holds
everything written before. Every write compares the controller epoch, so a term that has ended
without noticing changes nothing.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers import leaving
from logfleet.controller.brokers.fencing import admission_steps, fence_steps, newcomers
from logfleet.controller.brokers.internal_topics import raising_steps
from logfleet.controller.brokers.stop_check import Objection
from logfleet.controller.brokers.vanishing import HELD_MS_MAX, Hold, hold
from logfleet.controller.changes.election_writes import election_steps, preferences
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import remove_unfinished
from logfleet.controller.running.decisions import broker_kept, record_write
from logfleet.controller.running.task_limit import TaskLimit
from logfleet.io.clock import monotonic_ms, now_ms
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.packing import Step
from logfleet.metadata.receipts import SLOTS, Receipts, check_with_receipt
from logfleet.metadata.store import MetadataStore, StoreRefused, Txn
from logfleet.store.claims import settle_or_recognise
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

T = TypeVar("T")
log = structlog.get_logger()

ATTEMPTS_MAX: Final = 10
"""Number of times that an operation is decided again because the cluster changed meanwhile."""
CATCH_UP_S_MAX: Final = 2.0
"""Longest wait for the image to show the change that a decision conflicted with."""
ELECTION_PARTITIONS: Final = 100
"""Partitions handled in one step of the loop: 0.1 ms, up to 3 ms if all of them change."""
OUTCOME_UNKNOWN: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "The controller stopped before the metadata store had answered; the change may have been made.",
)


class NotControllerError(Exception):
    """This broker is not the controller, or lost that role before the operation was done.

    Kafka: NOT_CONTROLLER.
    """


class _ConflictError(Exception):
    """A write's compares failed: it was decided on an outdated image."""


class TermDecision(msgspec.Struct, Generic[T], frozen=True):
    """Writes to commit, in this order or in any, and the answer after that.

    cause: why leaders change by it, if that is not obvious.
    """

    txns: tuple[Txn, ...]
    answer: T
    cause: str | None = None
    in_any_order: bool = False


Operation = Callable[[ClusterImage, int, BrokerLayers], TermDecision[T] | Refusal]
"""Decides on an image, for a controller epoch, with the cluster's configuration.

It is decided again if the image was outdated.
"""


class Term:
    """The term of broker `broker_id`, begun by the create revision `epoch` of the controller's key.

    Runs until cancelled. static: this broker's server.properties, for defaults that the cluster
    does not set. has_converged: the cluster was at least once in a state where nothing was left to
    do. decisions: gets what all that is committed has decided.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        epoch: int,
        broker_id: int,
        static: Mapping[str, str],
        *,
        decisions: Decisions,
    ) -> None:
        self.epoch = epoch
        self._broker_id = broker_id
        self._receipts = Receipts(epoch, broker_id, ())
        self.has_converged = False
        self._decisions = decisions
        self._objections: dict[int, Objection] = {}
        self._store = store
        self._follower = follower
        self._static = static
        self._wake = asyncio.Event()
        self._waiting: deque[tuple[Operation[object], asyncio.Future[object]]] = deque()
        self._current: asyncio.Task[None] | None = None
        self._subscription = follower.subscribe(self._wake)
        self._due = Changes(everything=True)
        self._hold: Hold | None = None

    async def submit(self, operation: Operation[T]) -> T | Refusal:
        """The operation's answer after it has been committed. Raises NotControllerError."""
        future: asyncio.Future[T | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, future))  # type: ignore[arg-type]  # the pair shares its T
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Work until cancelled.

        Raises NotControllerError, StoreUnavailable, StoreRefused, StoreReplaced. An operation that
        fails, or that the store refuses, is refused; the term goes on. Any other error comes from
        the cluster's own state, which a rule was not made for: the term has failed.
        """
        await self._follower.until_revision(self.epoch)
        held = await self._store.range(keys.receipts(self._broker_id))
        self._receipts = Receipts(self.epoch, self._broker_id, held.items)
        while True:
            self._wake.clear()
            await self._converge()
            self.has_converged = True
            if self._waiting:
                await self._run_next()
            elif not self._wake.is_set():
                await self._wake.wait()

    async def finish(self) -> None:
        """After `run` was cancelled: complete the current operation, and refuse the waiting ones.

        The current one's write may be applied already; sent to the next controller, it would be
        refused because of its own success. Nothing is written that a new controller does not
        expect: the writes still compare the epoch. Raises what `run` does.
        """
        self._refuse_waiting()
        if self._current is not None:
            with contextlib.suppress(NotControllerError):  # `_answer` has refused the operation
                await self._current

    async def close(self) -> None:
        """Answer waiting operations with NotControllerError, the current one with OUTCOME_UNKNOWN.

        Call it once `run` has ended.
        """
        self._follower.unsubscribe(self._subscription)
        self._refuse_waiting()
        if self._current is not None and not self._current.done():
            self._current.cancel()
            await asyncio.wait([self._current])

    def _refuse_waiting(self) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(NotControllerError())

    async def _run_next(self) -> None:
        operation, future = self._waiting.popleft()
        if not future.done():
            self._current = asyncio.ensure_future(self._answer(operation, future))
            await asyncio.shield(self._current)  # see finish
        self._wake.set()

    async def _answer(self, operation: Operation[T], future: "asyncio.Future[T | Refusal]") -> None:
        try:
            answer = await self._run(operation)
        except asyncio.CancelledError:
            if not future.done():
                future.set_result(OUTCOME_UNKNOWN)
            raise
        except Exception:
            if not future.done():
                future.set_exception(NotControllerError())
            raise
        if not future.done():
            future.set_result(answer)

    async def _run(self, operation: Operation[T]) -> T | Refusal:
        for _ in range(ATTEMPTS_MAX):
            image = self._follower.image
            decision = self._decide(operation, image)
            if isinstance(decision, Refusal):
                return decision
            try:
                if decision.in_any_order:
                    await self._commit_all(decision.txns, decision.cause)
                else:
                    for txn in decision.txns:
                        await self._commit(txn, decision.cause)
            except StoreRefused as error:
                log.warning("decision_refused", epoch=self.epoch, reason=str(error))
                message = f"The metadata store refuses to write this: {error}"
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            except _ConflictError:
                await self._catch_up(image)
                await self._converge()
                continue
            return decision.answer
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The cluster changed {ATTEMPTS_MAX} times while this was being decided; try again.",
        )

    def _decide(self, operation: Operation[T], image: ClusterImage) -> TermDecision[T] | Refusal:
        """The decision, or a refusal if deciding fails or no controller could commit it.

        Every controller after this one would fail in the same way.
        """
        try:
            decision = operation(image, self.epoch, self._layers(image))
            if isinstance(decision, TermDecision):
                for txn in decision.txns:
                    check_with_receipt(txn)
        except Exception as error:
            log.exception("decision_failed", epoch=self.epoch)
            message = f"The controller could not do this: {error}"
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        return decision

    async def _converge(self) -> None:
        """Commit writes until the newest image leaves nothing to do."""
        while True:
            image, changes = self._subscription.take()
            self._due.add(changes)
            if self._due == Changes() or self._is_held(image):
                return
            try:
                if await self._converge_once(image):
                    self._due = Changes()
            except _ConflictError:
                await self._catch_up(image)

    def _is_held(self, image: ClusterImage) -> bool:
        """Whether elections wait for vanished brokers to register again; the work stays due."""
        now, before = monotonic_ms(), self._hold
        recent = self._follower.recent_brokers.within(now)
        self._hold = hold(before, recent, image.brokers, now)
        if self._hold is not None and before is None:
            log.warning("elections_held", reason=self._hold.why, epoch=self.epoch)
            self._decisions.record(Decision(Kind.ELECTIONS_HELD, self._hold.why))
            asyncio.get_running_loop().call_later((HELD_MS_MAX + 1) / 1000, self._wake.set)
        return self._hold is not None and now < self._hold.until_ms

    async def _converge_once(self, image: ClusterImage) -> bool:
        """Fence brokers that are gone, remove them from all partitions, admit new ones.

        See logfleet.controller.brokers.fencing. Returns whether that is all. If not, more brokers
        have vanished meanwhile, so that elections wait; or there are newcomers and partitions were
        changed: only an image in which nothing is left to change admits newcomers.
        """
        due = self._due
        await self._commit_all(pack(self.epoch, fence_steps(image)))
        # An election compares the fence, so it needs the revision that wrote it.
        image = self._follower.image
        if self._is_held(image):
            return False
        for topic_id in image.unfinished:
            topic = image.entries.get(topic_id)
            assert topic is not None, "what is unfinished is an entry"
            await self._commit(remove_unfinished(self.epoch, topic))
        new = newcomers(image)
        if due.everything or due.brokers or due.broker_configs or new:
            due.topics = {topic.id for topic in image.topics()}
        changed = await self._elect(image, due.topics)
        if new and changed:
            return False
        if new:
            await self._commit_all(pack(self.epoch, admission_steps(image)))
            await self._elect(self._follower.image, due.topics)
        await self._raise_internal_topics(self._follower.image)
        await self._let_leave(self._follower.image)
        return True

    async def _raise_internal_topics(self, image: ClusterImage) -> None:
        steps = tuple(raising_steps(image, self._layers(image)))
        await self._commit_all(pack(self.epoch, steps))
        if steps:
            log.info("internal_topics_raised", partitions=len(steps), epoch=self.epoch)

    async def _let_leave(self, image: ClusterImage) -> None:
        """Begin to drain the brokers that asked to leave, unless a partition objects.

        Once the image shows that a broker is draining, its partitions get other leaders.
        """
        kept: dict[int, Objection] = {}
        for broker_id, answer in leaving.decide(image):
            if isinstance(answer, Objection):
                kept[broker_id] = answer
                if self._objections.get(broker_id) != answer:
                    log.info("broker_kept", broker=broker_id, reason=str(answer))
                    self._decisions.record(broker_kept(broker_id, answer))
            else:
                await self._commit_all(pack(self.epoch, [answer]))
                log.info("broker_draining", broker=broker_id, epoch=self.epoch)
        self._objections = kept

    async def _elect(self, image: ClusterImage, topic_ids: Iterable[bytes]) -> int:
        """Run the elections of these topics; return how many partitions were changed."""
        layers, may_be_unclean = self._layers(image), not newcomers(image)
        preferred = preferences(image, now_ms())
        steps: list[Step] = []
        checked = elected = 0
        async with TaskLimit(SLOTS) as commits:
            for topic, indexes in _slices(image, topic_ids):
                steps += election_steps(
                    image,
                    topic,
                    layers,
                    indexes=indexes,
                    may_be_unclean=may_be_unclean,
                    preferred=preferred,
                )
                checked += len(indexes)
                if checked >= ELECTION_PARTITIONS:
                    checked = 0
                    elected += len(steps)
                    for txn in pack(self.epoch, steps):
                        await commits.start(self._commit(txn))
                    steps = []
                    await asyncio.sleep(0)
            elected += len(steps)
            for txn in pack(self.epoch, steps):
                await commits.start(self._commit(txn))
        if elected:
            log.info("partitions_elected", partitions=elected, epoch=self.epoch)
        return elected

    async def _commit_all(self, txns: Sequence[Txn], cause: str | None = None) -> None:
        """Commit in any order; errors as in `_commit`. When it ends, no write is in flight."""
        async with TaskLimit(SLOTS) as commits:
            for txn in txns:
                await commits.start(self._commit(txn, cause))

    async def _commit(self, txn: Txn, cause: str | None = None) -> None:
        """Commit, record it, and wait until the image shows it. Raises NotControllerError.

        Raises _ConflictError if it has to be decided again. An attempt without an answer may have
        been applied; its receipt shows it (`logfleet.metadata.receipts`), whatever others have
        written since, and even if the controller was replaced since.
        """
        image, receipt = self._follower.image, self._receipts.take()
        try:
            settled = await settle_or_recognise(self._store, receipt.on(txn))
            was_done = receipt.settled(settled.result, unanswered=settled.unanswered)
            revision = receipt.revision
        finally:
            self._receipts.give_back(receipt)
        if not was_done:
            control, _ = settled.result.reads
            is_mine = control is not None and control.create_revision == self.epoch
            raise _ConflictError if is_mine else NotControllerError
        record_write(self._decisions, image, txn, cause)
        await self._follower.until_revision(revision)

    async def _catch_up(self, decided_on: ClusterImage) -> None:
        """Wait, within a limit, until the image is newer than the outdated one."""
        log.info("decision_repeated", revision=decided_on.revision, epoch=self.epoch)
        if self._follower.image.revision > decided_on.revision:
            return
        try:
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await self._follower.until_revision(decided_on.revision + 1)
        except TimeoutError:
            log.warning("metadata_loader_behind", revision=decided_on.revision)

    def _layers(self, image: ClusterImage) -> BrokerLayers:
        return BrokerLayers(self._static, image.configs_of_broker(None).values)


def _slices(image: ClusterImage, topic_ids: Iterable[bytes]) -> Iterator[tuple[Topic, range]]:
    """At most ELECTION_PARTITIONS of a topic at a time."""
    for topic_id in topic_ids:
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            count = len(topic.partitions)
            for first in range(0, count, ELECTION_PARTITIONS):
                yield topic, range(first, min(first + ELECTION_PARTITIONS, count))
