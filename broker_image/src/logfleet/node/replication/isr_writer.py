"""Writes the ISRs of the partitions that this broker leads to the store.

`logfleet.replication.isr_proposals` decides; this is its shell.
"""

import asyncio
import contextlib

import structlog

from logfleet.io.clock import monotonic_ms
from logfleet.io.slices import Slices
from logfleet.metadata.store import MetadataStore, StoreRefused, StoreUnavailable, UnknownOutcome
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.leadership import Leadership
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.replication.isr_proposals import (
    Accepted,
    CheckAll,
    Effect,
    Ended,
    IsrProposals,
    Proposal,
    Repeated,
    Reply,
    Send,
    Settled,
    State,
    Write,
)
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decision, Decisions, Kind

log = structlog.get_logger(__name__)


class IsrWriter:
    """Writes ISR changes. shrinks, expands: written ones; failed: those that lost to another write.

    refused: attempts that the store refused; they are repeated.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        table: PartitionTable,
        leadership: Leadership,
        decisions: Decisions,
    ) -> None:
        self.shrinks = self.expands = self.failed = self.refused = 0
        self._decisions = decisions
        self._store = store
        self._follower = follower
        self._table = table
        self._leadership = leadership
        self._proposals: IsrProposals[LeaderPartition] = IsrProposals(leadership.lag_max_ms)
        self._is_due = asyncio.Event()
        self._slices = Slices()

    def check(self, partition: LeaderPartition) -> None:
        """Check the partition soon: a broker may have to join or leave its ISR."""
        if self._proposals.check(partition):
            self._is_due.set()

    async def run(self) -> None:
        """Work until cancelled. Raises StoreReplaced."""
        subscription = self._follower.subscribe(self._is_due)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._is_due.clear()
                image, _ = subscription.take()
                effects = self._proposals.step(monotonic_ms(), image, self._leadership.member)
                for effect in effects:
                    self._carry_out(effect, tasks)
                await self._slices.pause_if_due()
                await self._until_due()

    async def _until_due(self) -> None:
        delay_s = (self._proposals.wake_ms - monotonic_ms()) / 1000
        if delay_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._is_due.wait()

    def _carry_out(self, effect: Effect[LeaderPartition], tasks: asyncio.TaskGroup) -> None:
        match effect:
            case Send(write):
                tasks.create_task(self._send(write))
            case CheckAll():
                tasks.create_task(self._check_all())
            case Settled(proposal):
                self._report(proposal)
            case Ended(partition):
                self._leadership.end(partition)
            case Repeated(write, reply):
                self._log_repeated(write, reply)
            case Accepted(write, is_written):
                if write.attempts.refusals:
                    log.info("metadata_write_accepted", write=_name(write))
                if is_written:
                    log.info("isrs_changed", partitions=len(write.proposals))

    async def _send(self, write: Write[LeaderPartition]) -> None:
        reply: Reply
        try:
            reply = await self._store.txn(write.txn)
        except (StoreUnavailable, UnknownOutcome, StoreRefused) as error:
            reply = error
        self._proposals.replied(write, reply)
        self._is_due.set()

    async def _check_all(self) -> None:
        for partition in self._table.led():
            if partition.has_followers:
                self.check(partition)
            await self._slices.pause_if_due()

    def _log_repeated(
        self,
        write: Write[LeaderPartition],
        reply: StoreUnavailable | UnknownOutcome | StoreRefused,
    ) -> None:
        if not isinstance(reply, StoreRefused):
            pause_s = write.pause_ms / 1000
            log.warning("metadata_write_repeated", reason=str(reply), pause_s=pause_s)
            return
        self.refused += 1
        if write.attempts.refusals == 1:
            log.error("metadata_write_refused", write=_name(write), reason=str(reply))

    def _report(self, proposal: Proposal[LeaderPartition]) -> None:
        self.failed += proposal.state is State.LOST
        if proposal.state is not State.WON:
            return
        partition, change, state = proposal.partition, proposal.change, proposal.change.state
        self.expands += bool(change.added)
        self.shrinks += bool(proposal.leaving)
        isrs = (proposal.former_isr, state.isr)
        before, after = ([broker_id for broker_id, _ in isr] for isr in isrs)
        topic, index = partition.topic, partition.index
        log.debug("isr_changed", topic=topic, partition=index, isr=after, before=before)
        changed = [(Kind.ISR_SHRINK, broker_id, why) for broker_id, why in proposal.leaving.items()]
        for broker_id, _ in change.added:
            changed.append((Kind.ISR_EXPAND, broker_id, f"broker {broker_id} has caught up"))
        facts = {"isr": [before, after], "leader_epoch": state.leader_epoch}
        for kind, broker_id, why in changed:
            self._decisions.record(Decision(kind, why, topic, index, broker_id, facts))


def _name(write: Write[LeaderPartition]) -> str:
    return f"ISR of {next(iter(write.proposals))}"
