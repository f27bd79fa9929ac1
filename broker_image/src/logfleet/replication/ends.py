"""All offsets of one replica: what of its log is written, durable and committed.

A pure machine, one for each log, for as long as the log is open. The same object leads, follows,
or does neither. Its methods are events. What they cause is done by the `Effects` that a role
brings with it; each is called after the state has changed, and may be called several times.

What the caller owes:
- `extended` and `written` come from the log: a batch is in memory or queued for the disk, then in
  the files. `appended` (a leader) and `received` (a follower) follow `extended` at once, in the
  same step, with the size of what was added.
- `flushed` comes after the disk has confirmed it. A leader acknowledges nothing that its topic
  wants durable (flush.messages) before that.
- `lowered` comes before files are cut, `truncated` after; nothing is appended in between. A leader
  does not truncate.
- `lead` comes once the leader epoch is durable (KAFKA-16541).

What always holds: log_start_offset <= high_watermark <= log_end_offset, in a leader also
high_watermark <= own_end_offset <= log_end_offset; the high watermark moves back only when the log
is truncated, which a leader never does.
Source: Kafka's UnifiedLog, LogOffsetMetadata, Partition.maybeIncrementLeaderHW.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.leader import IsrChange, LeaderReplicas
from logfleet.replication.uncommitted import Uncommitted
from logfleet.types import BrokerEpoch
from logfleet.wire.errors import ErrorCode

NO_RULE: Final = (1 << 63) - 1
"""As flush.messages: records need not be durable before they are committed."""
UNCOUNTED_BYTES: Final = 1 << 62
"""An upper bound for records that were appended before the role began: nobody counted them."""


class Role(Enum):
    """What a replica does. Each may follow each: a role that begins ends the one before."""

    NONE = auto()
    LEADS = auto()
    FOLLOWS = auto()


class Effects(Protocol):
    """What a role does when its ends have moved."""

    def committed(self, size: int) -> None:
        """The high watermark moved, over batches of `size` bytes in all: consumers may read them.

        Producers that wait for it are acknowledged. 0: no batch is committed as a whole by that.
        """

    def written(self, size: int) -> None:
        """Batches of `size` bytes are in the files: followers may read them."""

    def own_part_done(self) -> None:
        """The own end may have moved, the high watermark has not: acknowledge acks=1."""

    def flush(self) -> bool:
        """Make the log durable soon; `ReplicaEnds.flushed` follows.

        False if that will not happen, as the broker stops: then records are committed without it.
        """

    def log_start_moved(self) -> None:
        """The log start offset has moved up."""


class NoEffects:
    """The effects of a replica that neither leads nor follows."""

    def committed(self, size: int) -> None: ...
    def written(self, size: int) -> None: ...
    def own_part_done(self) -> None: ...
    def log_start_moved(self) -> None: ...
    def flush(self) -> bool:
        return False


_NO_EFFECTS: Final = NoEffects()


class ReplicaEnds:
    """The ends of one replica, all exclusive, and the events that move them.

    log_start_offset: the first offset that may be read. log_end_offset: the offset that the next
    record gets. written_end_offset: everything below is in the files, and only a machine crash
    takes it; the rest is queued for the disk. recovery_point: everything below survives a power
    loss. checkpointed_point: the recovery point that a crash leaves. first_dirty_offset: end of the
    compacted part. high_watermark: everything below is committed, as far as this replica has
    learned. own_end_offset: a leader's own part is done: it is written, and durable if the topic
    wants that. truncations: how often the log was shortened. flush_messages: of the topic.
    leading: the other replicas, while this one leads.
    """

    __slots__ = (
        "_counted_from",
        "_effects",
        "_uncommitted",
        "_unwritten",
        "checkpointed_point",
        "first_dirty_offset",
        "flush_messages",
        "high_watermark",
        "leading",
        "log_end_offset",
        "log_start_offset",
        "own_end_offset",
        "recovery_point",
        "role",
        "truncations",
        "written_end_offset",
    )

    def __init__(
        self,
        *,
        log_start_offset: int = 0,
        log_end_offset: int = 0,
        recovery_point: int = 0,
        checkpointed_point: int = 0,
        first_dirty_offset: int = 0,
    ) -> None:
        """A log that was just opened: all of it is in its files."""
        assert log_start_offset <= log_end_offset
        self.log_start_offset = self.high_watermark = log_start_offset
        self.log_end_offset = self.written_end_offset = self.own_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.checkpointed_point = checkpointed_point
        self.first_dirty_offset = first_dirty_offset
        self.flush_messages = NO_RULE
        self.truncations = 0
        self.role = Role.NONE
        self.leading: LeaderReplicas | None = None
        self._effects: Effects = _NO_EFFECTS
        # (end offset, size) of a leader's batches that are queued for the disk
        self._unwritten: deque[tuple[int, int]] = deque()
        self._uncommitted = Uncommitted()
        self._counted_from = log_end_offset  # `_uncommitted` has the sizes from here on

    # The log

    def extended(self, end_offset: int) -> None:
        """The log ends at `end_offset` now; what is new may be queued for the disk."""
        self.log_end_offset = end_offset

    def written(self, end_offset: int, truncations: int) -> None:
        """Everything below `end_offset` is in the files.

        truncations: as when it was appended; if there were others since, the bytes may be cut off
        by now, and nothing happens.
        """
        if truncations != self.truncations:
            return
        self.written_end_offset = max(self.written_end_offset, end_offset)
        if self._unwritten:
            self._take_written()

    def _take_written(self) -> None:
        """A leader's batches that were queued are in the files: its own part goes on."""
        size, unwritten = 0, self._unwritten
        while unwritten and unwritten[0][0] <= self.written_end_offset:
            size += unwritten.popleft()[1]
        self._written_here(size)

    def flushed(self, recovery_point: int) -> None:
        """The disk has confirmed everything below."""
        self.recovery_point = recovery_point
        self._durable()

    def _durable(self) -> None:
        if self.leading is not None:
            end_offset = min(self.recovery_point, self.written_end_offset)
            if end_offset > self.own_end_offset:
                self._own_part_done(end_offset)

    def checkpointed(self, recovery_point: int) -> None:
        """A crash leaves this recovery point, or the present one if that was lowered since."""
        self.checkpointed_point = min(recovery_point, self.recovery_point)

    def compacted(self, end_offset: int) -> None:
        """The log is compacted up to there."""
        self.first_dirty_offset = end_offset

    def deleted(self, offset: int) -> bool:
        """Records below `offset` are deleted; returns whether the log start moved.

        Where nobody leads or follows the caller knows what is committed.
        """
        assert offset <= self.log_end_offset, "nothing is deleted that is not there"
        assert self.role is Role.NONE or offset <= self.high_watermark, "it is committed"
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self._effects.log_start_moved()
        return True

    def lowered(self, end_offset: int) -> bool:
        """The log is about to be cut at `end_offset`.

        Returns whether checkpoint files may name offsets beyond: they are written before the cut.
        """
        assert self.leading is None, "a leader does not truncate"
        is_checkpointed = max(self.recovery_point, self.log_start_offset) > end_offset
        self.truncations += 1
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.checkpointed_point = min(self.checkpointed_point, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        return is_checkpointed

    def truncated(self, end_offset: int, *, is_emptied: bool = False) -> None:
        """The log was cut at `end_offset`, or emptied, so that it begins there."""
        assert self.leading is None, "a leader does not truncate"
        self.log_end_offset = self.written_end_offset = self.own_end_offset = end_offset
        if is_emptied:
            self.log_start_offset = end_offset
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), end_offset)
        self._count_from_here()

    def moved(self, copy: "ReplicaEnds") -> None:
        """The log continues in the files of a copy, with the same batches, as durable or more.

        Counts as a truncation: what began before must not be completed in other files.
        """
        assert copy.written_end_offset == copy.log_end_offset == self.log_end_offset
        assert copy.recovery_point >= self.recovery_point
        self.truncations += 1
        self.recovery_point = copy.recovery_point
        self.checkpointed_point = copy.checkpointed_point
        self.first_dirty_offset = copy.first_dirty_offset
        self.written_end_offset = copy.written_end_offset
        if self._unwritten:
            self._take_written()
        self._durable()

    # Roles

    def hosted(self, high_watermark: int) -> None:
        """The log is a replica of this broker; the high watermark is as known, within the log."""
        assert self.role is Role.NONE
        self.high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)

    def lead(self, replicas: LeaderReplicas, effects: Effects) -> None:
        """A leader epoch begins, or goes on after it was suspended."""
        self._begin(Role.LEADS, effects)
        self.leading, replicas.ends = replicas, self
        self.own_end_offset = self.written_end_offset
        if self.own_end_offset < self.log_end_offset:
            self._unwritten.append((self.log_end_offset, 0))
        self._commit()

    def follow(self, effects: Effects) -> None:
        """Another broker leads in a new leader epoch, and this one follows it."""
        self._begin(Role.FOLLOWS, effects)

    def stop(self, effects: Effects) -> None:
        """The role with these effects ends; nothing happens if it did, or another has begun."""
        if effects is self._effects:
            self.role, self.leading, self._effects = Role.NONE, None, _NO_EFFECTS
            self._unwritten.clear()

    def _begin(self, role: Role, effects: Effects) -> None:
        self.role, self.leading, self._effects = role, None, effects
        self._count_from_here()

    def _count_from_here(self) -> None:
        self._unwritten.clear()
        self._uncommitted.clear()
        self._counted_from = self.log_end_offset

    def as_of_now(self) -> "ReplicaEnds":
        """A copy without a role, which nothing moves any more: for requests of an ended role."""
        copy = ReplicaEnds()
        for name in _OFFSETS:
            setattr(copy, name, getattr(self, name))
        return copy

    # A leader

    def appended(self, size: int) -> None:
        """A batch of `size` bytes was appended at the log's end."""
        end_offset, leading = self.log_end_offset, self.leading
        assert leading is not None, "only a leader appends"
        if self.written_end_offset < end_offset:
            self._uncommitted.add(end_offset, size)
            self._unwritten.append((end_offset, size))
        elif leading.followers or end_offset - self.recovery_point >= self.flush_messages:
            self._uncommitted.add(end_offset, size)
            self._written_here(size)
        else:  # the usual case without followers
            size += self._uncommitted.take(end_offset)
            self.own_end_offset = self.high_watermark = end_offset
            self._effects.committed(size)

    def _written_here(self, size: int) -> None:
        """Batches of `size` bytes are in the files."""
        self._effects.written(size)
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed < self.flush_messages or not self._effects.flush():
            self._own_part_done(self.written_end_offset)

    def _own_part_done(self, end_offset: int) -> None:
        self.own_end_offset = max(self.own_end_offset, end_offset)
        if not self._commit():
            self._effects.own_part_done()

    def _commit(self) -> bool:
        """Move the high watermark as far as the in-sync replicas allow; whether it moved."""
        assert self.leading is not None
        end_offset = self.leading.committed_end(self.own_end_offset)
        return end_offset > self.high_watermark and self._advance(end_offset)

    def _advance(self, high_watermark: int) -> bool:
        is_counted = self.high_watermark >= self._counted_from
        self.high_watermark = high_watermark
        size = self._uncommitted.take(high_watermark)
        self._effects.committed(size if is_counted else UNCOUNTED_BYTES)
        return True

    def fetched(
        self,
        replica: int,
        broker_epoch: BrokerEpoch,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
    ) -> ErrorCode:
        """A follower has every record below `offset`; see LeaderReplicas.fetched for the errors."""
        assert self.leading is not None
        held_back = self.leading.fetched(
            replica, broker_epoch, offset, log_start_offset, now_ms=now_ms
        )
        if held_back is True:
            self._commit()
        elif held_back is not False:
            return held_back
        return ErrorCode.NONE

    def isr_change(
        self, now_ms: int, is_eligible: Callable[[int, BrokerEpoch], bool]
    ) -> IsrChange | None:
        """The ISR change to write; see LeaderReplicas.isr_change."""
        assert self.leading is not None
        change = self.leading.isr_change(now_ms, is_eligible)
        self._commit()
        return change

    def isr_won(self, revision: int) -> None:
        """The ISR change in flight was written."""
        assert self.leading is not None
        self.leading.won(revision)
        self._commit()

    def isr_lost(self, state: PartitionValue | None, revision: int) -> bool:
        """The ISR change in flight was not written; see LeaderReplicas.lost."""
        assert self.leading is not None
        goes_on = self.leading.lost(state, revision)
        self._commit()
        return goes_on

    def learned(self, state: PartitionValue, revision: int) -> bool:
        """The image shows this state; see LeaderReplicas.learned."""
        assert self.leading is not None
        goes_on = self.leading.learned(state, revision)
        self._commit()
        return goes_on

    # A follower

    def received(self, size: int) -> None:
        """Batches of `size` bytes from the leader were appended."""
        self._uncommitted.add(self.log_end_offset, size)

    def leader_committed(self, high_watermark: int) -> None:
        """The leader has committed everything below `high_watermark`.

        A follower's own never moves back, even if a new leader has not caught up with it, and never
        passes what is in its files.
        """
        assert self.role is Role.FOLLOWS
        end_offset = min(high_watermark, self.written_end_offset)
        if end_offset > self.high_watermark:
            self._advance(end_offset)


_OFFSETS: Final = (
    "log_start_offset",
    "log_end_offset",
    "written_end_offset",
    "own_end_offset",
    "recovery_point",
    "checkpointed_point",
    "first_dirty_offset",
    "high_watermark",
    "truncations",
)
