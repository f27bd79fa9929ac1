"""Lets this broker go on leading while the metadata store does not answer.

Until its lease's deadline, no other broker leads what this one leads. While the store is away no
keepalive is answered and the deadline passes, though nothing else is wrong: without the store no
broker is elected either. Kafka's brokers go on without their controllers, and Patroni's primaries
without their store if the other members agree ("DCS failsafe mode").

Past the deadline this broker goes on leading a partition if others confirmed it within the last
CONFIRMED_MS, in one of two ways:
- More than half of the other active brokers answer that the store does not answer them either
  (`silent_peers`): then no broker can be elected.
- Every other member of the ISR fetches from it in this leader epoch: a clean election takes one of
  them, and a broker stops fetching from its former leader before it leads. acks=all would be safe
  without this rule, as the high watermark needs these fetches. The rule bounds how old the data is
  that consumers, group members and acks=1 get.
All others are suspended: partitions whose ISR is this broker alone, and coordinators that can
commit nothing.

If the store answers again and the registration still stands (`io.etcd.lease`), suspended partitions
go on in the same leader epoch, and the broker keeps its broker epoch. If the registration has
ended, the broker leads nothing until it has registered again.
"""

import asyncio
from typing import Final

import structlog

from logfleet.io.clock import boot_s, monotonic_ms
from logfleet.io.slices import Slices
from logfleet.metadata.store import Lease
from logfleet.node.cluster.silent_peers import SilentPeers
from logfleet.node.partitions.leadership import Key, Leadership
from logfleet.node.partitions.local_partitions import LocalPartitions
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.replication.leader import LeaderReplicas
from logfleet.sessions.followers import FollowerFetches
from logfleet.telemetry.decisions import Decision, Decisions, Kind

log = structlog.get_logger(__name__)

CONFIRMED_MS: Final = 2_000
"""Largest age of a follower's fetch or a peer's answer that counts.

Followers fetch at least every replica.fetch.wait.max.ms (0.5 s).
"""
CHECK_S: Final = 0.25
EXTENSION_S: Final = 1.0
"""Time for which a check lets this broker answer past its lease's deadline.

Some checks may be late.
"""
SETTLING_MS: Final = 1_750
"""Time to wait after this process was stopped for a while.

By then followers have connected and fetched again (they pause for up to 1 s), and peers have
answered again.
"""
SILENT_SHARE: Final = 0.5
"""Share of the lease's time without an answered keepalive after which the store counts as silent.

Keepalives are sent after a third of it.
"""


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
        self._tenure: Tenure | None = None
        self._is_active = False
        self._checked_s = 0.0
        self._counted_from_ms = (
            # messages that arrived before may have waited in a socket while this process was
            # stopped
            0
        )
        self._slices = Slices()

    @property
    def silent_s(self) -> float:
        """Time since the store last answered a keepalive, 0 while that is normal."""
        if self._tenure is None:
            return 0.0
        lease = self._tenure.lease
        unanswered_s = boot_s() - (lease.deadline_s - lease.ttl_s)
        return unanswered_s if unanswered_s > SILENT_SHARE * lease.ttl_s else 0.0

    @property
    def is_active(self) -> bool:
        """Whether this broker leads past its lease's deadline."""
        return self._is_active

    def registered(self, lease: Lease) -> Tenure:
        """This broker is registered under this lease."""
        self._tenure = Tenure(lease)
        return self._tenure

    def unregistered(self) -> None:
        """The registration has ended, and with it all leadership."""
        if self._tenure is not None:
            self._tenure.is_over = True
        self._tenure = None
        self._is_active = False

    async def run(self) -> None:
        """Check the registration's tenure every CHECK_S, until cancelled."""
        try:
            while True:
                await asyncio.sleep(CHECK_S)
                await self._check()
        finally:
            await self._peers.stop()

    async def _check(self) -> None:
        tenure, now_s = self._tenure, boot_s()
        if now_s - self._checked_s > EXTENSION_S:
            self._counted_from_ms = monotonic_ms()
        self._checked_s = now_s
        if tenure is None or not self.silent_s:
            await self._peers.stop()
        else:
            self._peers.start()
        if tenure is None:
            return
        if now_s + 2 * CHECK_S < tenure.lease.deadline_s:
            self._end()
            return
        self._begin()
        if monotonic_ms() - self._counted_from_ms < SETTLING_MS:
            return  # too little has arrived since, and nothing is answered meanwhile
        await self._suspend_unconfirmed()
        tenure.extended_s = now_s + EXTENSION_S

    def _begin(self) -> None:
        if self._is_active:
            return
        self._is_active = True
        cause = (
            "the metadata store does not answer: it leads what followers or most brokers confirm"
        )
        log.warning("failsafe_began", silent_s=round(self.silent_s, 1))
        self._decisions.record(Decision(Kind.FAILSAFE_BEGAN, cause))

    def _end(self) -> None:
        if self._is_active:
            self._is_active = False
            cause = "the metadata store answers again, and the registration stands"
            log.info("failsafe_ended", suspended=self._leadership.suspended)
            self._decisions.record(Decision(Kind.FAILSAFE_ENDED, cause))
        if self._leadership.suspended:
            self._local.resume(lambda *_: True)

    async def _suspend_unconfirmed(self) -> None:
        """Suspend what others do not confirm; resume what they confirm again."""
        since_ms = max(monotonic_ms() - CONFIRMED_MS, self._counted_from_ms)
        if self._peers.is_majority_silent(since_ms):
            self._local.resume(lambda *_: True)
            return
        suspended = 0
        for partition in self._table.led():
            key = (partition.topic_id, partition.index)
            if partition.is_leading and not self._is_followed(
                key, partition.replicas_state, since_ms
            ):
                self._leadership.suspend(partition)
                suspended += 1
            await self._slices.pause_if_due()
        if suspended:
            log.warning("partitions_suspended", partitions=suspended)
        else:
            self._local.resume(lambda key, kept: self._is_followed(key, kept, since_ms))

    def _is_followed(self, key: Key, replicas: LeaderReplicas, since_ms: int) -> bool:
        """Whether all brokers that a clean election could take follow this leader.

        False if none could.
        """
        if replicas.has_eligible:
            return False
        others, leader_epoch = replicas.others_in_sync(), replicas.state.leader_epoch
        return bool(others) and all(
            self._followers.follows(*member, key, leader_epoch, since_ms) for member in others
        )
