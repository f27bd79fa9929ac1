"""The leader's view of a partition's replicas: their progress, the ISR, what they all have.

The rules are Kafka's (Partition, Replica, PartitionState; KIP-497, 841, 903, 966) and those of the
specification Kip320.tla. One thing differs: the leader writes an ISR change to the metadata store
itself (`logfleet.replication.isr_write`).
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.partition_state import Member, effective_min_isr, with_isr
from logfleet.types import BrokerEpoch
from logfleet.wire.errors import ErrorCode

NEVER_MS: Final = -(1 << 62)
"""Earlier than any time: the follower has never caught up, or never fetched."""
NO_OFFSET: Final = -1


class IsrChange(msgspec.Struct, frozen=True):
    """An ISR change to write: `state` replaces the state that `revision` wrote.

    added: members that the old state lacks. The store compares their registrations and fences
    (KIP-841, 903).
    """

    state: PartitionValue
    revision: int
    added: tuple[Member, ...]


class LeaderEnds(Protocol):
    """The leader's own ends; see logfleet.replication.ends."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def own_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


class Follower:
    """One follower's progress, from the fetches of one of its broker epochs.

    log_end_offset, log_start_offset: from its last fetch, NO_OFFSET before the first.
    last_fetch_ms: the time of that fetch. caught_up_ms: when its log last reached the leader's end
    (Replica.lastCaughtUpTimeMs).
    """

    __slots__ = (
        "_leader_end_offset",
        "broker_epoch",
        "caught_up_ms",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_epoch: BrokerEpoch, caught_up_ms: int) -> None:
        self.begin(broker_epoch, caught_up_ms)

    def begin(self, broker_epoch: BrokerEpoch, caught_up_ms: int) -> None:
        """Start again for this broker epoch, without any progress."""
        self.broker_epoch = broker_epoch
        self.caught_up_ms = caught_up_ms
        self.last_fetch_ms = NEVER_MS
        self.log_end_offset = self.log_start_offset = NO_OFFSET
        self._leader_end_offset = 0  # at the last fetch

    def fetched(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """The follower has every record below `offset`. Source: Replica.updateFetchStateOrThrow.

        If it now has what the leader had at the previous fetch, it was caught up at that time.
        Without this rule no follower of a busy partition would ever be caught up.
        """
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = now_ms
        self._leader_end_offset = leader_end_offset


class LeaderReplicas:
    """The replicas of a partition, as the leader of ONE leader epoch sees them.

    One object per epoch. `ReplicaEnds` moves the high watermark by it.

    me: the leader's broker id. ends: of the leader's log. state, revision: the partition's state in
    the store, as last seen. pending: the ISR change that is being written, or None. followers: by
    broker id. epoch_start_offset: the log's end when this epoch began.
    is_at_min_isr: whether the ISR is large enough for acks=all and for the high watermark
    (KIP-966).
    isr_change_due: whether to call `isr_change` now; it is also due every lag_max_ms / 2.
    """

    __slots__ = (
        "_counted",
        "_lag_max_ms",
        "ends",
        "epoch_start_offset",
        "followers",
        "is_at_min_isr",
        "isr_change_due",
        "me",
        "pending",
        "revision",
        "state",
    )

    def __init__(
        self,
        me: int,
        state: PartitionValue,
        revision: int,
        *,
        ends: LeaderEnds,
        lag_max_ms: int,
        now_ms: int,
    ) -> None:
        self.me = me
        self.ends = ends
        self.epoch_start_offset = ends.log_end_offset
        self._lag_max_ms = lag_max_ms
        self.pending: IsrChange | None = None
        # members of the ISR get replica.lag.time.max.ms to send their first fetch
        self.followers = {
            broker_id: Follower(broker_epoch, now_ms)
            for broker_id, broker_epoch in state.isr
            if broker_id != me
        }
        self._counted: list[tuple[Follower, int]] = []
        self._adopt(state, revision)

    # Progress

    def fetched(
        self,
        replica: int,
        broker_epoch: BrokerEpoch,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
    ) -> bool | ErrorCode:
        """A follower fetches from `offset`, so it has every record below.

        Returns whether it held the high watermark back, which may move now (`committed_end`).

        The caller has checked the leader epoch and that the logs do not diverge.
        UNKNOWN_LEADER_EPOCH: not a replica in the state that this leader has seen; the image may
        show it later (Partition.followerReplicaOrThrow). STALE_BROKER_EPOCH: a newer registration
        of that broker has fetched or is in the ISR; nothing changes (KIP-903).
        """
        follower = self.followers.get(replica)
        if follower is None:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if broker_epoch != follower.broker_epoch:
            if broker_epoch < follower.broker_epoch:
                return ErrorCode.STALE_BROKER_EPOCH
            follower.begin(broker_epoch, NEVER_MS)
            self.isr_change_due = True
        before = follower.log_end_offset
        follower.fetched(offset, log_start_offset, self.ends.own_end_offset, now_ms)
        if not self.isr_change_due and (replica, broker_epoch) not in self.state.isr:
            self.isr_change_due = self._is_in_sync(follower) or self._is_caught_up(follower, now_ms)
        # a follower that was ahead of the high watermark did not hold it back
        return before <= self.ends.high_watermark < offset

    def _is_in_sync(self, follower: Follower) -> bool:
        """Whether it may join the ISR: it has all records of before this epoch, and all committed.

        Source: Kip320.tla, rule 4.
        """
        return follower.log_end_offset >= max(self.ends.high_watermark, self.epoch_start_offset)

    def _is_caught_up(self, follower: Follower, now_ms: int) -> bool:
        """Whether it is at the log's end, or was within replica.lag.time.max.ms.

        Source: ReplicaState.isCaughtUp.
        """
        return (
            follower.log_end_offset >= self.ends.own_end_offset
            or now_ms - follower.caught_up_ms <= self._lag_max_ms
        )

    def _fetches(self, follower: Follower, now_ms: int) -> bool:
        """Whether it has fetched within replica.lag.time.max.ms.

        Without this check a stopped follower of an idle partition would leave and join for ever.
        """
        return now_ms - follower.last_fetch_ms <= self._lag_max_ms

    def committed_end(self, own_end_offset: int) -> int:
        """The least log end of the replicas that the high watermark waits for, the leader's too.

        NO_OFFSET if it must stand still: the ISR is too small, or a member's progress is unknown.
        """
        if not self.is_at_min_isr:
            return NO_OFFSET
        end_offset = own_end_offset
        for follower, broker_epoch in self._counted:
            if follower.broker_epoch != broker_epoch:
                return NO_OFFSET  # it registered again
            end_offset = min(end_offset, follower.log_end_offset)
        return end_offset

    # Changes of the ISR

    def isr_change(
        self, now_ms: int, is_eligible: Callable[[int, BrokerEpoch], bool]
    ) -> IsrChange | None:
        """The ISR change to write, which is then `pending`.

        None if none is needed or one is pending.

        is_eligible: whether (broker id, broker epoch) may join by the image: it is registered and
        active (KIP-841), and its replica is not offline. Source: KIP-497.
        The high watermark may move. It waits for a caught-up follower that is about to join, or
        such a follower of a busy partition would never reach it (Partition.maybeIncrementLeaderHW).
        """
        self.isr_change_due = False
        for follower in self.followers.values():
            if follower.log_end_offset >= self.ends.own_end_offset:
                # a session's fetch does not name idle partitions (KIP-227); Kafka's leader checks
                # all partitions of the session with each fetch instead
                follower.caught_up_ms = now_ms
        if self.pending is not None:
            return None
        members = dict(self.state.isr)
        isr: list[Member] = [(self.me, members[self.me])]
        joining: list[Member] = []
        for broker_id, follower in self.followers.items():
            member = (broker_id, follower.broker_epoch)
            is_caught_up = self._is_caught_up(follower, now_ms)
            if members.get(broker_id) == follower.broker_epoch:
                if is_caught_up:
                    isr.append(member)
            elif is_eligible(*member):
                if self._is_in_sync(follower) and (is_caught_up or self._fetches(follower, now_ms)):
                    isr.append(member)
                elif is_caught_up:
                    joining.append(member)
        if set(isr) != set(self.state.isr):
            # an unclean leader has recovered once it changes the ISR (KIP-704)
            state = msgspec.structs.replace(with_isr(self.state, isr), recovering=False)
            added = tuple(member for member in isr if member not in self.state.isr)
            self.pending = IsrChange(state, self.revision, added)
        self._count(joining)
        return self.pending

    def won(self, revision: int) -> None:
        """The pending change was written, as `revision`."""
        assert self.pending is not None, "no ISR change is in flight"
        self.lost(self.pending.state, revision)

    def lost(self, state: PartitionValue | None, revision: int) -> bool:
        """The store holds `state` in place of the pending change; None if the key is gone.

        That state may be the change itself, written by an attempt whose reply was lost.
        Returns False if this leader epoch has ended.
        """
        assert self.pending is not None, "no ISR change is in flight"
        self.pending = None
        if state is None or not self.learned(state, revision):
            return False
        self._adopt(self.state, self.revision)
        return True

    def learned(self, state: PartitionValue, revision: int) -> bool:
        """The image shows this state. Returns False if this leader epoch has ended.

        Members that a pending change adds keep holding the high watermark until its definite reply:
        the change may have been written before this state.
        """
        if state.partition_epoch <= self.state.partition_epoch:
            return True
        mine = state.leader == self.me and self.me in dict(state.isr)
        if not mine or state.leader_epoch != self.state.leader_epoch:
            return False
        self._adopt(state, revision)
        return True

    def _adopt(self, state: PartitionValue, revision: int) -> None:
        self.state = state
        self.revision = revision
        self.is_at_min_isr = len(state.isr) >= effective_min_isr(state)
        followers = self.followers
        members = self._maximal_isr()
        self.followers = {
            broker_id: followers.get(broker_id) or Follower(BrokerEpoch(0), NEVER_MS)
            for broker_id in dict.fromkeys((*state.replicas, *dict(members)))
            if broker_id != self.me
        }
        self.isr_change_due = True
        self._count(())

    def _count(self, joining: Sequence[Member]) -> None:
        """Make the high watermark wait for the maximal ISR and for the joining members."""
        self._counted = [
            (self.followers[broker_id], broker_epoch)
            for broker_id, broker_epoch in dict.fromkeys((*self._maximal_isr(), *joining))
            if broker_id != self.me
        ]

    def _maximal_isr(self) -> tuple[Member, ...]:
        """The members of the ISR and of the pending change.

        More members are stricter, so safe (KIP-497).
        """
        return self.state.isr + (self.pending.state.isr if self.pending else ())

    # Answers for other parts of the broker

    def others_in_sync(self) -> list[Member]:
        """The other members of the maximal ISR: a clean election elects one of them."""
        return [member for member in dict.fromkeys(self._maximal_isr()) if member[0] != self.me]

    @property
    def has_eligible(self) -> bool:
        """Whether the state or the pending change names an eligible leader (KIP-966)."""
        return bool(self.state.elr or (self.pending is not None and self.pending.state.elr))

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The earliest log start of the leader and its live followers: records below are deleted.

        Source: Partition.lowWatermarkIfLeader.
        """
        starts = (
            follower.log_start_offset
            for broker_id, follower in self.followers.items()
            if is_alive(broker_id)
        )
        return min((log_start_offset, *starts))

    def lag(self, replica: int) -> int:
        """Records that the replica lacks, by its last fetch; all records before its first fetch."""
        return max(0, self.ends.own_end_offset - max(0, self.followers[replica].log_end_offset))

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Replicas outside the ISR, except those that a reassignment adds.

        If there are any, the partition is under-replicated.
        """
        members = dict(self.state.isr)
        return tuple(
            replica
            for replica in self.state.replicas
            if replica not in members and replica not in self.state.adding
        )
