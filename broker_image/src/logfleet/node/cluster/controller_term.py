"""One term of control: what a broker does from its election as controller until it is replaced.

One worker brings the cluster to rest (fences, elections, half-made topics) whenever the image has changed, and between that runs
the admin operations one at a time, each decided on an image that holds everything written before. Every write compares
the controller epoch, so a term that is over without knowing it changes nothing.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from logfleet.control.brokers import leaving
from logfleet.control.brokers.fencing import admission_steps, fence_steps, newcomers
from logfleet.control.brokers.internal_topics import raising_steps
from logfleet.control.brokers.may_i import Objection
from logfleet.control.brokers.vanishing import HELD_MS_MAX, Hold, hold
from logfleet.control.election_writes import election_steps, preferences
from logfleet.control.store_writes import Refusal, pack
from logfleet.control.topic_configs import BrokerLayers
from logfleet.control.topics import remove_unfinished
from logfleet.io.clock import monotonic_ms, now_ms
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.packing import Step
from logfleet.metadata.receipts import SLOTS, Receipts, check_with_receipt
from logfleet.metadata.store import MetadataStore, StoreRefused, Txn
from logfleet.node.cluster.at_once import AtOnce
from logfleet.node.cluster.claims import settle_or_recognise
from logfleet.node.cluster.metadata_loader import MetadataLoader
from logfleet.node.decisions.control import RecordedControl
from logfleet.wire.errors import ErrorCode

T = TypeVar("T")
log = structlog.get_logger()

ATTEMPTS_MAX: Final = 10
"""Times an operation is decided anew because the cluster changed under it."""
CATCH_UP_S_MAX: Final = 2.0
"""Longest wait for the image to show what made a decision come too late."""
ELECTION_PARTITIONS: Final = 100
"""Partitions looked at without letting the loop do something else: 0.1 ms, up to 3 ms with the transaction if all of them change."""
OUTCOME_UNKNOWN: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "The controller stopped before the metadata store had answered; the change may have been made.",
)


class NotControllerError(Exception):
    """This broker is not the controller, or ceased to be it before the operation was done (Kafka: NOT_CONTROLLER)."""


class _ConflictError(Exception):
    """A transaction's compares failed: it was decided on something that is no longer so."""


class TermDecision(msgspec.Struct, Generic[T], frozen=True):
    """What to commit, in this order or in any, and the answer once that is done. cause: why leaders change by it, if it is not plain to see."""

    txns: tuple[Txn, ...]
    answer: T
    cause: str | None = None
    in_any_order: bool = False


Operation = Callable[[ClusterImage, int, BrokerLayers], TermDecision[T] | Refusal]
"""Decides on an image, for a controller epoch, with the cluster's configuration. Decided anew if it came too late."""


class Term:
    """The term of broker `broker_id` that began with the create revision `epoch` of the controller's key. Runs until cancelled.

    static: this broker's server.properties, the last word on defaults that the cluster does not set.
    has_converged: it has brought the cluster to where nothing was left to do, once at least.
    noted: told all that is committed.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        epoch: int,
        broker_id: int,
        static: Mapping[str, str],
        *,
        noted: RecordedControl,
    ) -> None:
        self.epoch = epoch
        self._broker_id = broker_id
        self._receipts = Receipts(epoch, broker_id, ())
        self.has_converged = False
        self._noted = noted
        self._kept: dict[int, Objection] = {}
        self._store = store
        self._follower = follower
        self._static = static
        self._wake = asyncio.Event()
        self._waiting: deque[tuple[Operation[object], asyncio.Future[object]]] = deque()
        self._begun: asyncio.Task[None] | None = None
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
        """Work until cancelled. Raises NotControllerError, StoreUnavailable, StoreRefused, StoreReplaced.

        An operation that fails, or that the store refuses, is refused; the term goes on. Whatever else it raises, a rule met what
        it was not made for in the cluster itself: the term has failed.
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
        """After `run` was cancelled: come to know whether the operation it was at is done, and answer what it has not come to.

        Its transaction may be done already; asked of the next controller, our own success would be refused. Nothing is written
        that a new controller does not expect: this goes on comparing the epoch. Raises what `run` does.
        """
        self._leave_waiting()
        if self._begun is not None:
            with contextlib.suppress(NotControllerError):  # answered
                await self._begun

    async def close(self) -> None:
        """Answer what was not done with NotControllerError, what may have been with OUTCOME_UNKNOWN. To be called once `run` has ended."""
        self._follower.unsubscribe(self._subscription)
        self._leave_waiting()
        if self._begun is not None and not self._begun.done():
            self._begun.cancel()
            await asyncio.wait([self._begun])

    def _leave_waiting(self) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(NotControllerError())

    async def _run_next(self) -> None:
        operation, future = self._waiting.popleft()
        if not future.done():
            self._begun = asyncio.ensure_future(self._answer(operation, future))
            await asyncio.shield(self._begun)  # see finish
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
        """A refusal too if deciding fails, or nobody could commit it: every controller after this one would fail alike."""
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
        """Bring the cluster to where nothing is left to do, by the newest image."""
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
        """Whether elections wait for brokers that vanished to register again; what is due stays so."""
        now, before = monotonic_ms(), self._hold
        recent = self._follower.recent_brokers.within(now)
        self._hold = hold(before, recent, image.brokers, now)
        if self._hold is not None and before is None:
            log.warning("elections_held", reason=self._hold.why, epoch=self.epoch)
            self._noted.held(self._hold.why)
            asyncio.get_running_loop().call_later((HELD_MS_MAX + 1) / 1000, self._wake.set)
        return self._hold is not None and now < self._hold.until_ms

    async def _converge_once(self, image: ClusterImage) -> bool:
        """Fence who is gone, take them out of all partitions, let in who is new (logfleet.control.brokers.fencing).

        Whether that is all. If not, others have vanished meanwhile, so that elections wait; or there are
        newcomers and partitions were changed: only an image in which nothing is left to change lets
        newcomers in.
        """
        due = self._due
        await self._commit_all(pack(self.epoch, fence_steps(image)))
        # An election compares the fence, so it has to know the revision that wrote it.
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
        """What who may leave has is given to others as soon as the image shows it."""
        kept: dict[int, Objection] = {}
        for broker_id, answer in leaving.decide(image):
            if isinstance(answer, Objection):
                kept[broker_id] = answer
                if self._kept.get(broker_id) != answer:
                    log.info("broker_kept", broker=broker_id, reason=str(answer))
                    self._noted.kept(broker_id, answer)
            else:
                await self._commit_all(pack(self.epoch, [answer]))
                log.info("broker_draining", broker=broker_id, epoch=self.epoch)
        self._kept = kept

    async def _elect(self, image: ClusterImage, topic_ids: Iterable[bytes]) -> int:
        """How many partitions were changed."""
        layers, may_be_unclean = self._layers(image), not newcomers(image)
        preferred = preferences(image, now_ms())
        steps: list[Step] = []
        looked_at = elected = 0
        async with AtOnce(SLOTS) as commits:
            for topic, indexes in _slices(image, topic_ids):
                steps += election_steps(
                    image,
                    topic,
                    layers,
                    indexes=indexes,
                    may_be_unclean=may_be_unclean,
                    preferred=preferred,
                )
                looked_at += len(indexes)
                if looked_at >= ELECTION_PARTITIONS:
                    looked_at = 0
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
        """Commit what may be done in any order. All that was begun has got its answer when this ends or raises, as `_commit` does."""
        async with AtOnce(SLOTS) as commits:
            for txn in txns:
                await commits.start(self._commit(txn, cause))

    async def _commit(self, txn: Txn, cause: str | None = None) -> None:
        """Commit it, note it, and see it in the image. Raises NotControllerError; _ConflictError if it has to be decided again.

        An attempt without an answer may have been applied; its receipt tells (`logfleet.metadata.receipts`). That holds
        whatever others have written since, and if the controller has been replaced since.
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
        self._noted.written(image, txn, cause)
        await self._follower.until_revision(revision)

    async def _catch_up(self, decided_on: ClusterImage) -> None:
        """Wait until the image has moved on from the one that was too old, but not for ever: it may have already."""
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
    """ELECTION_PARTITIONS at most of each topic at a time."""
    for topic_id in topic_ids:
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            count = len(topic.partitions)
            for first in range(0, count, ELECTION_PARTITIONS):
                yield topic, range(first, min(first + ELECTION_PARTITIONS, count))
