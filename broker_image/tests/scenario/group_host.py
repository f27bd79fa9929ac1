"""A shell for a group coordinator without clock, socket or disk: what the tests of groups stand on.

It does what `logfleet.coordinators.turn` asks of a shell, with a list as log. The log holds bytes, so every
restart proves the record format as well.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from logfleet.coordinators.turn import LogLine, Waiter, Write
from logfleet.groups.classic.group import ClassicGroup
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.records import GroupRecord
from logfleet.groups.registry import KINDS, Kinds, record_types
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode

WALL_MS = 1_700_000_000_000
"""Wall clock when the monotonic clock stands at 0."""


class LogEntry(NamedTuple):
    """A record, of a producer's transaction or of none; or its marker, which is no record."""

    key: bytes = b""
    value: bytes | None = None
    producer_id: int | None = None
    commits: bool | None = None


@dataclass
class GroupHost:
    """Runs one coordinator.

    holds_commits: written records wait until `commit` is called, as if followers were slow.
    append_error: if set, appending fails with it.
    """

    config: GroupConfig = field(default_factory=GroupConfig)
    now_ms: int = 0
    holds_commits: bool = False
    append_error: ErrorCode = ErrorCode.NONE
    kinds: Kinds = KINDS

    def __post_init__(self) -> None:
        self.types = record_types(self.kinds)
        self.log: list[LogEntry] = []
        self.committed_end = 0
        self.replies: list[tuple[Waiter, object]] = []
        self.answered: set[Waiter] = set()
        self.log_lines: list[LogLine] = []
        self.held: deque[Write[GroupRecord]] = deque()
        self.coordinator = GroupCoordinator(self.config, self.kinds)
        self.take_up()

    def classic(self, group_id: str) -> ClassicGroup | None:
        """A classic group in the coordinator's memory."""
        groups = self.coordinator.of(CLASSIC).groups()
        return next((group for group in groups if group.group_id == group_id), None)

    def turn(self) -> GroupTurn:
        return GroupTurn(self.now_ms, WALL_MS + self.now_ms)

    def take_up(self) -> None:
        for turn in self.coordinator.take_up(self.turn):
            self.run(turn)

    def run(self, turn: GroupTurn) -> None:
        """Execute what a turn left, and the turns that follow from it."""
        for reply in turn.replies:
            if reply.waiter not in self.answered:
                self.answered.add(reply.waiter)
                self.replies.append((reply.waiter, reply.response))
        self.log_lines += turn.log_lines
        for write in turn.writes:
            self._write(write)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let everything held be committed, or fail."""
        if error is ErrorCode.NONE:
            self.committed_end = len(self.log)
        while self.held:
            self._finish(self.held.popleft(), error)

    def wait(self, for_ms: int) -> None:
        """Let time pass, stopping wherever the coordinator wants to be woken."""
        until_ms = self.now_ms + for_ms
        while True:
            due_ms = self.coordinator.next_deadline_ms()
            if due_ms is None or due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._tick()
        self.now_ms = until_ms
        self._tick()

    def unload(self) -> None:
        """Lose the partition: what was not committed is answered by an error."""
        turn = self.turn()
        self.coordinator.unload(turn)
        self.run(turn)
        self.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def load(self) -> None:
        """Take over the partition on another broker, which knows what was committed."""
        del self.log[self.committed_end :]
        self.held.clear()
        self.coordinator = GroupCoordinator(self.config, self.kinds)
        for offset, entry in enumerate(self.log):
            if entry.commits is None:
                self.coordinator.replay(self._decode(entry), offset, entry.producer_id)
            else:
                assert entry.producer_id is not None
                self.coordinator.end_transaction(entry.producer_id, is_commit=entry.commits)
        self.take_up()

    def records(self) -> list[GroupRecord]:
        return [self._decode(entry) for entry in self.log if entry.commits is None]

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Append the marker of a transaction; it is committed as a write would be."""
        self.log.append(LogEntry(producer_id=producer_id, commits=is_commit))
        self.coordinator.end_transaction(producer_id, is_commit=is_commit)
        if not self.holds_commits:
            self.committed_end = len(self.log)

    def _decode(self, entry: LogEntry) -> GroupRecord:
        value = None if entry.value is None else memoryview(entry.value)
        return self.types.decode(memoryview(entry.key), value)

    def _tick(self) -> None:
        turn = self.turn()
        self.coordinator.tick(turn)
        self.run(turn)

    def _write(self, write: Write[GroupRecord]) -> None:
        if write.records and self.append_error is not ErrorCode.NONE:
            self._finish(write, self.append_error)
            return
        producer_id = None if write.producer is None else write.producer.producer_id
        for record in write.records:
            self.log.append(LogEntry(*self.types.encode(record), producer_id))
            if producer_id is None:
                self.coordinator.apply(record)
            else:
                self.coordinator.replay(record, len(self.log) - 1, producer_id)
        if self.holds_commits:
            self.held.append(write)
        else:
            self.committed_end = len(self.log)
            self._finish(write, ErrorCode.NONE)

    def _finish(self, write: Write[GroupRecord], error: ErrorCode) -> None:
        turn = self.turn()
        write.then(turn, error)
        self.run(turn)
