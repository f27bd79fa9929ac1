"""Writes the ISRs of the partitions that this broker leads to the store.

The rules are in `logfleet.replication.isr_write`. A change that a fetch causes is written soon
after, together with others; a follower that no longer fetches is found by a periodic check of all
partitions. No change is given up before the store's definite answer: until then a broker that it
adds may be in the ISR already.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from logfleet.io import clock
from logfleet.io.slices import Slices
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.store import MetadataStore, Put, Txn
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.leadership import Leadership
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.replication.isr_write import Alone, Lost, Won, is_shown, isr_txns, read_answer
from logfleet.replication.leader import NEVER_MS, IsrChange, LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.store.loader import MetadataLoader
from logfleet.store.refused_writes import RefusedWrites, settle_when_accepted
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids

log = structlog.get_logger(__name__)

GATHERING_S: Final = 0.05
"""Time that a change waits for others to share its write.

A broker that comes back is in sync with many partitions at about the same time.
"""


class _Change(msgspec.Struct, frozen=True):
    """A change to write. isr: before it. leaving: the reason for each broker that leaves it."""

    partition: LeaderPartition
    change: IsrChange
    isr: tuple[Member, ...]
    leaving: dict[int, str]


_Changes = dict[str, _Change]
"""Changes by the partition's key in the store."""


class IsrWriter:
    """Writes ISR changes. shrinks, expands: written ones; failed: those that lost to another write.

    refused: those that the store refused, which are tried again.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        table: PartitionTable,
        leadership: Leadership,
        decisions: Decisions,
    ) -> None:
        self.shrinks = self.expands = self.failed = 0
        self.refused = RefusedWrites()
        self._decisions = decisions
        self._store = store
        self._follower = follower
        self._table = table
        self._leadership = leadership
        self._period_s = leadership.lag_max_ms / 2000
        self._due: set[LeaderPartition] = set()
        self._is_due = asyncio.Event()
        self._slices = Slices()

    def check(self, partition: LeaderPartition) -> None:
        """Check the partition soon: a broker may have to join or leave its ISR."""
        self._due.add(partition)
        self._is_due.set()

    async def run(self) -> None:
        """Work until cancelled. Raises StoreReplaced."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._check_all_periodically())
            tasks.create_task(self._check_all_when_brokers_change())
            while True:
                await self._is_due.wait()
                await asyncio.sleep(GATHERING_S)
                self._is_due.clear()
                due, self._due = self._due, set()
                changes = await self._changes(due)
                if changes:
                    tasks.create_task(self._write(changes))

    async def _check_all_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self._check_all()

    async def _check_all_when_brokers_change(self) -> None:
        """Check all partitions when a broker becomes active: it may join.

        It does not fetch again while a partition has nothing new, so no fetch would cause the
        check.
        """
        subscription = self._follower.subscribe()
        while True:
            _, changes = await subscription.next()
            if changes.brokers or changes.everything:
                await self._check_all()

    async def _check_all(self) -> None:
        for partition in self._table.led():
            if partition.has_followers:
                self.check(partition)
            await self._slices.pause_if_due()

    async def _changes(self, due: Iterable[LeaderPartition]) -> _Changes:
        """The changes to write for these partitions."""
        changes: _Changes = {}
        now_ms = clock.monotonic_ms()
        for partition in due:
            await self._slices.pause_if_due()
            if not partition.is_leading:
                continue
            before = partition.replicas_state.state.isr
            change = partition.isr_change(now_ms, _eligibility(self._follower.image, partition))
            if change is not None:
                key = keys.partition(uuids.to_text(partition.topic_id), partition.index)
                leaving = {
                    member[0]: _leaving_reason(partition.replicas_state, member, now_ms)
                    for member in before
                    if member not in change.state.isr
                }
                changes[key] = _Change(partition, change, before, leaving)
        return changes

    async def _write(self, changes: _Changes) -> None:
        """Write the changes; each ends won or lost."""
        image, me = self._follower.image, self._leadership.member
        wanted = {key: each.change for key, each in changes.items()}
        txns = [] if me is None else isr_txns(image, me, wanted)
        sent = {write.key for txn in txns for write in txn.success if isinstance(write, Put)}
        for key in changes.keys() - sent:  # no request contains it: it cannot have been written
            replicas = changes[key].partition.replicas_state
            changes[key].partition.isr_lost(replicas.state, replicas.revision)
        async with asyncio.TaskGroup() as tasks:
            for txn in txns:
                tasks.create_task(self._commit(txn, changes))

    async def _commit(self, txn: Txn, changes: _Changes) -> None:
        first = next(write.key for write in txn.success if isinstance(write, Put))
        answer = await settle_when_accepted(self._store, txn, self.refused, f"ISR of {first}")
        wanted = {key: each.change for key, each in changes.items()}
        lost: list[tuple[LeaderPartition, Lost]] = []
        async with asyncio.TaskGroup() as tasks:
            for key, outcome in read_answer(txn, answer, wanted).items():
                change = changes[key]
                if isinstance(outcome, Won):
                    change.partition.isr_won(outcome.revision)
                    self._record(change)
                elif isinstance(outcome, Alone):
                    tasks.create_task(self._write({key: change}))
                else:
                    lost.append((change.partition, outcome))
                await self._slices.pause_if_due()
        if lost:
            # until the image shows the cause, the same changes would be lost again
            await self._follower.until(lambda image: is_shown(image, txn, answer))
        if answer.succeeded:
            log.info("isrs_changed", partitions=len(txn.success))
        self.failed += len(lost)
        for partition, outcome in lost:
            if not partition.isr_lost(outcome.state, outcome.revision) and partition.is_current:
                self._leadership.end(partition)

    def _record(self, change: _Change) -> None:
        partition, state = change.partition, change.change.state
        self.expands += bool(change.change.added)
        self.shrinks += bool(change.leaving)
        before, after = ([broker_id for broker_id, _ in isr] for isr in (change.isr, state.isr))
        topic, index = partition.topic, partition.index
        log.debug("isr_changed", topic=topic, partition=index, isr=after, before=before)
        changed = [(Kind.ISR_SHRINK, broker_id, why) for broker_id, why in change.leaving.items()]
        for broker_id, _ in change.change.added:
            changed.append((Kind.ISR_EXPAND, broker_id, f"broker {broker_id} has caught up"))
        facts = {"isr": [before, after], "leader_epoch": state.leader_epoch}
        for kind, broker_id, why in changed:
            self._decisions.record(Decision(kind, why, topic, index, broker_id, facts))


def _leaving_reason(replicas: LeaderReplicas, member: Member, now_ms: int) -> str:
    broker_id, broker_epoch = member
    follower = replicas.followers[broker_id]
    if follower.broker_epoch != broker_epoch:
        return f"broker {broker_id} has registered again"
    never = follower.caught_up_ms == NEVER_MS
    since = "yet" if never else f"for {now_ms - follower.caught_up_ms} ms"
    lag = replicas.lag(broker_id)
    return f"broker {broker_id} is behind by {lag} records and has not caught up {since}"


def _eligibility(
    image: ClusterImage, partition: LeaderPartition
) -> Callable[[int, BrokerEpoch], bool]:
    """The registrations that may join the ISR: active ones whose disk works for this partition."""

    def is_eligible(broker_id: int, broker_epoch: BrokerEpoch) -> bool:
        broker = image.brokers.get(broker_id)
        return (
            broker is not None
            and broker.epoch == broker_epoch
            and broker.is_active
            and not image.is_offline(broker_id, partition.topic_id, partition.index)
        )

    return is_eligible
