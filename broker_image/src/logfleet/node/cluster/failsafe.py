"""Lets this broker go on leading while the metadata store does not answer.

`logfleet.replication.failsafe` decides; this is its shell.
"""

import asyncio

import structlog

from logfleet.io.clock import boot_s, monotonic_ms
from logfleet.io.slices import Slices
from logfleet.metadata.store import Lease
from logfleet.node.cluster.silent_peers import SilentPeers
from logfleet.node.partitions.leadership import Key, Leadership
from logfleet.node.partitions.local_partitions import LocalPartitions
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.replication import failsafe
from logfleet.replication.failsafe import (
    CHECK_S,
    PAST_DEADLINE,
    AskPeers,
    Began,
    Effect,
    Ended,
    Extend,
    Resume,
    StopAsking,
    SuspendUnfollowed,
    is_followed,
)
from logfleet.replication.leader import LeaderReplicas
from logfleet.sessions.followers import FollowerFetches
from logfleet.telemetry.decisions import Decision, Decisions, Kind

log = structlog.get_logger(__name__)


class Tenure:
    """The time in which one registration may answer as a leader.

    It ends at the lease's deadline, or at `extended_s` (by boot_s) if that is later. Parked
    requests keep the tenure under which they arrived: a later registration does not answer them.
    """

    __slots__ = ("extended_s", "is_over", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.extended_s = 0.0
        self.is_over = False

    @property
    def deadline_s(self) -> float:
        return 0.0 if self.is_over else max(self.lease.deadline_s, self.extended_s)


class Failsafe:
    """Extends this broker's tenure while the store is silent; `run` does so periodically.

    followers: what followers fetch from this broker.
    """

    def __init__(
        self,
        table: PartitionTable,
        leadership: Leadership,
        local: LocalPartitions,
        *,
        followers: FollowerFetches,
        peers: SilentPeers,
        decisions: Decisions,
    ) -> None:
        self._table = table
        self._leadership = leadership
        self._local = local
        self._followers = followers
        self._peers = peers
        self._decisions = decisions
        self._rules = failsafe.Failsafe()
        self._tenure: Tenure | None = None
        self._slices = Slices()

    @property
    def tenure(self) -> Tenure | None:
        """Of the registration by which this broker leads; None while it leads nothing."""
        return self._tenure

    @property
    def silent_s(self) -> float:
        """Time since the store last answered a keepalive, 0 while that is normal."""
        return 0.0 if self._tenure is None else failsafe.silent_s(boot_s(), self._tenure.lease)

    @property
    def is_active(self) -> bool:
        """Whether this broker leads past its lease's deadline."""
        return self._rules.state in PAST_DEADLINE

    def registered(self, lease: Lease) -> Tenure:
        """This broker is registered under this lease."""
        self._rules.registered()
        self._tenure = Tenure(lease)
        return self._tenure

    def unregistered(self) -> None:
        """The registration has ended, and with it all leadership."""
        self._rules.unregistered()
        if self._tenure is not None:
            self._tenure.is_over = True
        self._tenure = None

    async def run(self) -> None:
        """Check the registration's tenure every CHECK_S, until cancelled."""
        try:
            while True:
                await asyncio.sleep(CHECK_S)
                await self._check()
        finally:
            await self._peers.stop()

    async def _check(self) -> None:
        tenure = self._tenure
        lease = None if tenure is None else tenure.lease
        now_s, now_ms, peers = boot_s(), monotonic_ms(), self._peers.active()
        for effect in self._rules.check(now_s, now_ms, lease, peers):
            await self._carry_out(effect, tenure)

    async def _carry_out(self, effect: Effect, tenure: Tenure | None) -> None:
        match effect:
            case AskPeers(peers):
                self._peers.start(peers, self._rules.peer_answered)
            case StopAsking():
                await self._peers.stop()
            case Began(silent_s):
                cause = (
                    "the metadata store does not answer: "
                    "it leads what followers or most brokers confirm"
                )
                log.warning("failsafe_began", silent_s=round(silent_s, 1))
                self._decisions.record(Decision(Kind.FAILSAFE_BEGAN, cause))
            case Ended():
                cause = "the metadata store answers again, and the registration stands"
                log.info("failsafe_ended", suspended=self._leadership.suspended)
                self._decisions.record(Decision(Kind.FAILSAFE_ENDED, cause))
            case Resume(since_ms):
                self._local.resume(
                    lambda key, kept: since_ms is None or self._is_followed(key, kept, since_ms)
                )
            case SuspendUnfollowed(since_ms):
                suspended = await self._suspend_unfollowed(since_ms)
                for after in self._rules.judged(suspended):
                    await self._carry_out(after, tenure)
            case Extend(until_s):
                assert tenure is not None, "nothing is extended without a registration"
                tenure.extended_s = until_s

    async def _suspend_unfollowed(self, since_ms: int) -> int:
        """Return how many partitions were suspended."""
        suspended = 0
        for partition in self._table.led():
            key, replicas = (partition.topic_id, partition.index), partition.replicas_state
            if partition.is_leading and not self._is_followed(key, replicas, since_ms):
                self._leadership.suspend(partition)
                suspended += 1
            await self._slices.pause_if_due()
        if suspended:
            log.warning("partitions_suspended", partitions=suspended)
        return suspended

    def _is_followed(self, key: Key, replicas: LeaderReplicas, since_ms: int) -> bool:
        follows = self._followers.follows
        return is_followed(
            replicas,
            lambda broker_id, broker_epoch, leader_epoch: follows(
                broker_id, broker_epoch, key, leader_epoch, since_ms
            ),
        )
