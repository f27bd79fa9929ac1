"""Election of the controller: every broker campaigns, one wins, the others wait for its key to go.

The key `ctl` lives under a lease; its create revision is the controller epoch that all writes of a
term compare. The lease only tells when to try again: the compares, not time, ensure that there is
one controller.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import structlog

from logfleet.config.keys import BROKER_KEYS
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.election_writes import (
    SETTLED_MS,
    Imbalance,
    balance_steps,
    imbalances,
)
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.log_ends import QueryLogEnds
from logfleet.controller.running.longest_logs import LongestLogs
from logfleet.controller.running.term import (
    ELECTION_PARTITIONS,
    NotControllerError,
    Operation,
    Term,
    TermDecision,
)
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Controller
from logfleet.metadata.keys import ControllerValue
from logfleet.metadata.store import (
    Delete,
    Lease,
    LeaseNotFound,
    MetadataStore,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    Txn,
    created_at,
)
from logfleet.store.claims import PAUSE_S_MAX, claim, settle
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.wire.refusal import Refusal

T = TypeVar("T")
log = structlog.get_logger()

LEASE_TTL_S: Final = 3
"""Time for which the key of a dead controller lives; brokers' registrations live as long."""
HISTORY_S: Final = 600.0
"""The controller compacts revisions that are older.

A broker that was away for longer reads everything again.
"""
BALANCED_AT_ONCE: Final = 50
"""Partitions given back to their preferred leaders in one operation; Kafka's limit is 1,000."""
BALANCED: Final = "preferred replicas lead again"
FAILED_PAUSE_S_MAX: Final = 60.0
"""Longest pause after a failed term.

The first is PAUSE_S_MAX, and each is twice as long as the one before (as Kubernetes' crash loop
back-off), until a term has converged, or ended otherwise. Other brokers campaign meanwhile.
"""


class _TermFailedError(Exception):
    """A term ended because its own work failed. The failure has been logged."""


class ControllerLoop:
    """Campaigns for controller and, once elected, runs a term.

    incarnation: this process, as in its broker registration. static: its server.properties.
    query_log_ends: asks brokers how far their replicas' logs reach. failed_terms: count of terms
    that ended by a fault of the controller, not of the store.
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
        history_s: float = HISTORY_S,
        settled_s: float = SETTLED_MS / 1000,
    ) -> None:
        self._store = store
        self._follower = follower
        self._value = value
        self._static = static
        self._ttl_s = ttl_s
        self._history_s = history_s
        self._settled_s = settled_s
        self.query_log_ends = query_log_ends
        self._term: Term | None = None
        self.failed_terms = 0
        self.decisions = decisions
        self._failed_pause_s = PAUSE_S_MAX

    @property
    def is_controller(self) -> bool:
        return self._term is not None

    async def submit(self, operation: Operation[T]) -> T | Refusal:
        """Commit an operation as the controller, and return its answer.

        Raises NotControllerError.
        """
        if self._term is None:
            raise NotControllerError
        return await self._term.submit(operation)

    async def run(self) -> None:
        """Campaign, run a term, campaign again. Raises StoreReplaced. Cancelled, it resigns.

        What the store refuses to a controller, another broker may be allowed, and serving records
        needs no controller. The same holds for data that makes a controller fail: if brokers ended
        by it, they would do so one after the other.
        """
        while True:
            try:
                await self._resign_if_idle(await self._follower.until(self._may_campaign))
                lease = await self._store.grant_lease(self._ttl_s)
                try:
                    await self._campaign(lease)
                finally:
                    with contextlib.suppress(StoreUnavailable):  # then it expires
                        await lease.revoke()
            except (StoreUnavailable, StoreRefused) as error:
                log.warning("controller_election_delayed", reason=str(error))
                await asyncio.sleep(PAUSE_S_MAX)
            except _TermFailedError:
                await asyncio.sleep(self._failed_pause_s)
                self._failed_pause_s = min(2 * self._failed_pause_s, FAILED_PAUSE_S_MAX)

    def _may_campaign(self, image: ClusterImage) -> bool:
        return bool(image.revision) and (image.controller is None or self._is_me(image.controller))

    def _is_me(self, controller: Controller) -> bool:
        return controller.incarnation == self._value.incarnation

    async def _resign_if_idle(self, image: ClusterImage) -> None:
        """Give up an election that was won by a write whose answer was lost (KAFKA-13407).

        Nobody would act on it.
        """
        if image.controller is not None:
            log.warning("idle_controller_resigns", epoch=image.controller.epoch)
            held = (created_at(keys.CONTROLLER, image.controller.epoch),)
            await settle(self._store, Txn(held, (Delete(keys.CONTROLLER),)))
            epoch = image.controller.epoch
            await self._follower.until(
                lambda later: later.controller is None or later.controller.epoch != epoch
            )

    async def _campaign(self, lease: Lease) -> None:
        try:
            held = await claim(self._store, keys.CONTROLLER, keys.encode(self._value), lease)
        except LeaseNotFound:  # the store was away for longer than the lease lives
            return
        if held.lease == lease.id:
            await self._control(held.create_revision, lease)
        else:
            await self._follower.until_revision(held.mod_revision)

    async def _control(self, epoch: int, lease: Lease) -> None:
        log.info("controller_elected", broker=self._value.broker, epoch=epoch)
        self._record(
            Kind.CONTROLLER_ELECTED,
            "there was no controller, and it was the first to campaign",
            epoch,
        )
        term = self._term = Term(
            self._store,
            self._follower,
            epoch,
            self._value.broker,
            self._static,
            decisions=self.decisions,
        )
        longest_logs = LongestLogs(term, self._follower, self._static, self.query_log_ends)
        try:
            reason = await _first(
                _reason_once_done(term.run(), "another controller was elected"),
                _reason_once_done(lease.lost(), "the lease has ended"),
                _reason_once_done(
                    self._follower.until(lambda image: _replaced(image, epoch)), "it was replaced"
                ),
                _reason_once_done(self._compact_history(), "compaction ended"),
                _reason_once_done(self._balance_leaders(term), "balancing ended"),
                _reason_once_done(longest_logs.run(), "elections of the longest log ended"),
            )
            self._term = None
            await term.finish()
        except (StoreUnavailable, StoreRefused, StoreReplaced) as error:
            self._record(Kind.CONTROLLER_RESIGNED, str(error), epoch)
            raise
        except Exception as error:
            self._report_failure(term, error)
            raise _TermFailedError from error
        finally:
            self._term = None
            await term.close()
        self._failed_pause_s = PAUSE_S_MAX
        log.warning("controller_resigned", broker=self._value.broker, epoch=epoch, reason=reason)
        self._record(Kind.CONTROLLER_RESIGNED, reason, epoch)

    def _record(self, kind: Kind, cause: str, epoch: int) -> None:
        broker_id = self._value.broker
        self.decisions.record(Decision(kind, cause, broker=broker_id, facts={"epoch": epoch}))

    def _report_failure(self, term: Term, error: Exception) -> None:
        self.failed_terms += 1
        self._record(Kind.CONTROLLER_RESIGNED, f"it failed: {error}", term.epoch)
        if term.has_converged:
            self._failed_pause_s = PAUSE_S_MAX
        log.critical(
            "controller_term_failed",
            broker=self._value.broker,
            epoch=term.epoch,
            pause_s=self._failed_pause_s,
            exc_info=error,
        )

    async def _compact_history(self) -> None:
        while True:
            revision = self._follower.image.revision
            await asyncio.sleep(self._history_s)
            try:
                await self._store.compact(revision)
            except (StoreUnavailable, StoreRefused) as error:
                log.warning("metadata_compaction_delayed", reason=str(error))

    async def _balance_leaders(self, term: Term) -> None:
        """Give leadership back to preferred leaders periodically.

        A preferred replica that could lead in two checks counts as in sync in between. Source:
        ReplicationControlManager.maybeBalancePartitionLeaders.
        """
        layers = BrokerLayers(self._static)
        key = "auto.leader.rebalance.enable"
        is_enabled = BROKER_KEYS[key].parse(layers.effective_value(key)) is True
        interval_s = float(layers.effective_value("leader.imbalance.check.interval.seconds") or 0)
        while True:
            await asyncio.sleep(interval_s)
            found = await self._imbalances() if is_enabled else {}
            if not found:
                continue
            await asyncio.sleep(self._settled_s)
            still = await self._imbalances()
            settled = [each for each in found if each in still]
            for start in range(0, len(settled), BALANCED_AT_ONCE):
                await term.submit(_balance(settled[start : start + BALANCED_AT_ONCE]))
            log.info("leaders_balanced", partitions=len(settled), epoch=term.epoch)

    async def _imbalances(self) -> dict[Imbalance, None]:
        image = self._follower.image
        found: dict[Imbalance, None] = {}
        checked = 0
        for topic in image.topics():
            found.update(dict.fromkeys(imbalances(image, topic)))
            checked += len(topic.partitions)
            if checked >= ELECTION_PARTITIONS:
                checked = 0
                await asyncio.sleep(0)
        return found


def _balance(settled: Sequence[Imbalance]) -> Operation[None]:
    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[None]:
        return TermDecision(
            pack(epoch, balance_steps(image, settled)), None, BALANCED, in_any_order=True
        )

    return decide


def _replaced(image: ClusterImage, epoch: int) -> bool:
    """Whether the image, if not older than the term, shows another controller or none."""
    return image.revision >= epoch and (image.controller is None or image.controller.epoch != epoch)


async def _reason_once_done(what: Coroutine[Any, Any, object], reason: str) -> str:
    with contextlib.suppress(NotControllerError):
        await what
    return reason


async def _first(*coroutines: Coroutine[Any, Any, str]) -> str:
    """The result, or the error, of the first to end; the others are cancelled and awaited."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task in done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
