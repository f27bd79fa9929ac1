"""What the leader of a partition knows of its replicas: how far each has got, who is in sync, what is committed.

The rules are Kafka's (Partition, Replica, PartitionState; KIP-497, 841, 903, 966) and those of the specification Kip320.tla. Only the way of an
ISR change differs: the leader writes it to the metadata store itself (`logfleet.replication.isr_write`).
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from logfleet.metadata.keys import PartitionValue
from logfleet.replication.partition_state import Member, effective_min_isr, with_isr
from logfleet.wire.errors import ErrorCode

NEVER_MS: Final = -(1 << 62)
"""Stands for a time before all others: of a follower that never caught up, or never fetched."""
NO_OFFSET: Final = -1


class IsrChange(msgspec.Struct, frozen=True):
    """An ISR that the leader wants to write: `state` in place of the one that `revision` wrote.

    added: members that the replaced state does not have, whose right to be in sync the store has to compare (KIP-841, 903).
    """

    state: PartitionValue
    revision: int
    added: tuple[Member, ...]


class Follower:
    """What the leader knows of one follower, from the fetches of one of its broker epochs.

    log_end_offset, log_start_offset: what its last fetch said, NO_OFFSET before the first.
    last_fetch_ms: when that was. caught_up_ms: when it last had all that the leader had (Replica.lastCaughtUpTimeMs).
    """

    __slots__ = (
        "_leader_end_offset",
        "broker_epoch",
        "caught_up_ms",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_epoch: int, caught_up_ms: int) -> None:
        self.begin(broker_epoch, caught_up_ms)

    def begin(self, broker_epoch: int, caught_up_ms: int) -> None:
        """Know nothing of it but that it is of this broker epoch."""
        self.broker_epoch = broker_epoch
        self.caught_up_ms = caught_up_ms
        self.last_fetch_ms = NEVER_MS
        self.log_end_offset = self.log_start_offset = NO_OFFSET
        self._leader_end_offset = 0  # at the last fetch

    def fetched(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """It has everything below `offset`. Source: Replica.updateFetchStateOrThrow.

        Who now has what the leader had at the fetch before was caught up at that time: else no follower of a busy partition ever were.
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
    """The replicas of a partition as the leader of ONE leader epoch sees them; made anew at each election.

    me: the leader's broker id. state, revision: the partition's state in the store as this leader last knew it. pending: the one change that is in
    flight. followers: by broker id. epoch_start_offset: where the log ended when leading began.
    high_watermark: offset below which every record is committed (exclusive). Whatever moves it says so by what it returns, or, as changes of the
    state and `isr_change` do, leaves it to the caller to look.
    is_at_min_isr: whether the ISR has members enough for acks=all and for the high watermark to move (KIP-966).
    isr_change_due: since the last `isr_change` something came that it should look at; it is due as well when lag_max_ms / 2 have passed.
    """

    __slots__ = (
        "_counted",
        "_lag_max_ms",
        "_log_end_offset",
        "epoch_start_offset",
        "followers",
        "high_watermark",
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
        log_end_offset: int,
        high_watermark: int,
        lag_max_ms: int,
        now_ms: int,
    ) -> None:
        self.me = me
        self.epoch_start_offset = self._log_end_offset = log_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self._lag_max_ms = lag_max_ms
        self.pending: IsrChange | None = None
        # who is in sync is given time to say so
        self.followers = {
            broker_id: Follower(broker_epoch, now_ms)
            for broker_id, broker_epoch in state.isr
            if broker_id != me
        }
        self._counted: list[tuple[Follower, int]] = []
        self._adopt(state, revision)

    # Progress

    def appended(self, log_end_offset: int) -> bool:
        """The leader's own log holds everything below. Returns whether the high watermark moved."""
        self._log_end_offset = log_end_offset
        return self._move()

    def fetched(
        self,
        replica: int,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
    ) -> bool | ErrorCode:
        """A follower fetches from `offset` on, in this leader epoch and without diverging: it has all below. Returns whether the high watermark moved.

        UNKNOWN_LEADER_EPOCH: it is no replica as far as this leader knows, which may learn of it later (Partition.followerReplicaOrThrow).
        STALE_BROKER_EPOCH: another registration of that broker has been here, or is in sync; nothing moves (KIP-903).
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
        follower.fetched(offset, log_start_offset, self._log_end_offset, now_ms)
        if not self.isr_change_due and (replica, broker_epoch) not in self.state.isr:
            self.isr_change_due = self._is_in_sync(follower) or self._is_caught_up(follower, now_ms)
        # only who was behind the high watermark's next step can have held it
        return before <= self.high_watermark < offset and self._move()

    def _is_in_sync(self, follower: Follower) -> bool:
        """Whether it may join the ISR: nothing committed is missing, nor what came before this leader (Kip320.tla, rule 4)."""
        return follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)

    def _is_caught_up(self, follower: Follower, now_ms: int) -> bool:
        """Whether it has everything, or had so within replica.lag.time.max.ms (ReplicaState.isCaughtUp)."""
        return (
            follower.log_end_offset >= self._log_end_offset
            or now_ms - follower.caught_up_ms <= self._lag_max_ms
        )

    def _fetches(self, follower: Follower, now_ms: int) -> bool:
        """Whether it does so still, for which it might join. One that has stopped, at a high watermark that stands still, would leave and join for ever."""
        return now_ms - follower.last_fetch_ms <= self._lag_max_ms

    def _move(self) -> bool:
        """Let the high watermark go to the least end offset of all that count. Never back; not while the ISR is too small."""
        if not self.is_at_min_isr:
            return False
        end_offset = self._log_end_offset
        for follower, broker_epoch in self._counted:
            if follower.broker_epoch != broker_epoch:
                return False  # that very registration has gone: nobody knows what it held
            end_offset = min(end_offset, follower.log_end_offset)
        if end_offset <= self.high_watermark:
            return False
        self.high_watermark = end_offset
        return True

    # Changes of the ISR

    def isr_change(self, now_ms: int, is_eligible: Callable[[int, int], bool]) -> IsrChange | None:
        """The ISR that should be written, which is in flight from now on; None if it is well as it is or one is in flight (KIP-497).

        is_eligible: whether a broker id and broker epoch may join, as far as the image says: registered and active (KIP-841), its replica not offline.
        May move the high watermark: while a follower that is caught up is about to join, it waits for it, else the follower of a
        busy partition would never reach it (Partition.maybeIncrementLeaderHW).
        """
        self.isr_change_due = False
        for follower in self.followers.values():
            if follower.log_end_offset >= self._log_end_offset:
                # its fetches do not name what is idle (KIP-227), where Kafka's leaders look at all of a session with each fetch
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
            # a leader that came by an unclean election has recovered once it changes the ISR (KIP-704)
            state = msgspec.structs.replace(with_isr(self.state, isr), recovering=False)
            added = tuple(member for member in isr if member not in self.state.isr)
            self.pending = IsrChange(state, self.revision, added)
        self._count(joining)
        return self.pending

    def won(self, revision: int) -> None:
        """The change in flight was written, as `revision`."""
        assert self.pending is not None, "no ISR change is in flight"
        self.lost(self.pending.state, revision)

    def lost(self, state: PartitionValue | None, revision: int) -> bool:
        """The change in flight was not written, or by an attempt whose answer never came; this is there now, None for nothing.

        False if this leader epoch has ended.
        """
        assert self.pending is not None, "no ISR change is in flight"
        self.pending = None
        if state is None or not self.learned(state, revision):
            return False
        self._adopt(self.state, self.revision)
        return True

    def learned(self, state: PartitionValue, revision: int) -> bool:
        """The image shows this state. False if this leader epoch has ended.

        Who a change in flight would add counts on until its definite answer: it may have been written before.
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
        known = self.followers
        members = self._maximal_isr()
        self.followers = {
            broker_id: known.get(broker_id) or Follower(0, NEVER_MS)
            for broker_id in dict.fromkeys((*state.replicas, *dict(members)))
            if broker_id != self.me
        }
        self.isr_change_due = True
        self._count(())

    def _count(self, joining: Sequence[Member]) -> None:
        """Let the high watermark wait for the maximal ISR, and for those about to join it."""
        self._counted = [
            (self.followers[broker_id], broker_epoch)
            for broker_id, broker_epoch in dict.fromkeys((*self._maximal_isr(), *joining))
            if broker_id != self.me
        ]
        self._move()

    def _maximal_isr(self) -> tuple[Member, ...]:
        """Whoever is in sync, whether or not the change in flight is written: more members are stricter, so safe (KIP-497)."""
        return self.state.isr + (self.pending.state.isr if self.pending else ())

    # What others ask

    def others_in_sync(self) -> list[Member]:
        """The other members of the ISR, and those that a change in flight may have brought in: a clean election takes one of them."""
        return [member for member in dict.fromkeys(self._maximal_isr()) if member[0] != self.me]

    @property
    def has_eligible(self) -> bool:
        """Whether a broker outside the ISR may be elected cleanly (KIP-966), by the state or by a change in flight."""
        return bool(self.state.elr or (self.pending is not None and self.pending.state.elr))

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The earliest start of the leader's log and those of its live followers: before it all is deleted (Partition.lowWatermarkIfLeader)."""
        starts = (
            follower.log_start_offset
            for broker_id, follower in self.followers.items()
            if is_alive(broker_id)
        )
        return min((log_start_offset, *starts))

    def lag(self, replica: int) -> int:
        """Records that it does not have yet, as far as its last fetch told; all of them before the first."""
        return max(0, self._log_end_offset - max(0, self.followers[replica].log_end_offset))

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Replicas that are not in the ISR, without those that are being added: with any of them the partition is under-replicated."""
        members = dict(self.state.isr)
        return tuple(
            replica
            for replica in self.state.replicas
            if replica not in members and replica not in self.state.adding
        )
