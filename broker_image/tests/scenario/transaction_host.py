"""A shell for a transaction coordinator without clock, socket or disk: what its tests stand on.

It does what `logfleet.coordinators.turn` asks of a shell, with a list as log. The log holds bytes, so every
restart proves the record format as well.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from logfleet.coordinators.turn import LogLine, Waiter, Write
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.coordinator import TransactionCoordinator
from logfleet.transactions.markers import MarkersDue
from logfleet.transactions.records import TransactionRecord, decode, encode
from logfleet.transactions.state import Transaction
from logfleet.transactions.turn import TransactionTurn
from logfleet.wire.errors import ErrorCode

WALL_MS = 1_700_000_000_000
"""Wall clock when the monotonic clock stands at 0."""
FIRST_PRODUCER_ID = 1_000
NONE_LEFT = -1


@dataclass
class TransactionHost:
    """Runs one coordinator.

    holds_commits: written records wait until `commit` is called, as if followers were slow.
    append_error: if set, appending fails with it. has_producer_ids: whether there are any left.
    """

    config: TransactionConfig = field(default_factory=TransactionConfig)
    now_ms: int = 0
    holds_commits: bool = False
    append_error: ErrorCode = ErrorCode.NONE
    has_producer_ids: bool = True

    def __post_init__(self) -> None:
        self._producer_ids = count(FIRST_PRODUCER_ID)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed_end = 0
        self.replies: list[tuple[Waiter, object]] = []
        self.answered: set[Waiter] = set()
        self.log_lines: list[LogLine] = []
        self.markers: list[MarkersDue] = []
        self.held: deque[tuple[int, Write[TransactionRecord]]] = deque()
        self.coordinator = self.new_coordinator()
        self.take_up()

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.config, self.take_producer_id)

    def take_producer_id(self) -> int | None:
        return next(self._producer_ids) if self.has_producer_ids else None

    def turn(self) -> TransactionTurn:
        return TransactionTurn(self.now_ms, WALL_MS + self.now_ms)

    def take_up(self) -> None:
        for turn in self.coordinator.take_up(self.turn):
            self.run(turn)

    def call(self, method: Callable[..., None], *arguments: object) -> None:
        """Call a method of the coordinator in a turn, and execute what it decided."""
        turn = self.turn()
        method(turn, *arguments)
        self.run(turn)

    def run(self, turn: TransactionTurn) -> None:
        """Execute what a turn left, and the turns that follow from it."""
        for reply in turn.replies:
            if reply.waiter not in self.answered:
                self.answered.add(reply.waiter)
                self.replies.append((reply.waiter, reply.response))
        self.log_lines += turn.log_lines
        for write in turn.writes:
            self._write(write)
        self.markers += self.coordinator.take_markers()

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let everything held be committed, or its wait end with an error."""
        if error is ErrorCode.NONE:
            self.committed_end = len(self.log)
        for _ in range(len(self.held)):
            _, write = self.held.popleft()
            self._finish(write, error)

    def wait(self, for_ms: int) -> None:
        """Let time pass, stopping wherever the coordinator wants to be woken."""
        until_ms = self.now_ms + for_ms
        while True:
            due_ms = self.coordinator.next_deadline_ms()
            if due_ms is None or due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms + (due_ms <= self.now_ms), due_ms)
            self.call(self.coordinator.tick)
        self.now_ms = max(until_ms, self.now_ms)

    def expire(self) -> None:
        """Take all steps of a round over unused ids."""
        expiry = self.coordinator.expiry
        self.call(expiry.step)
        while expiry.is_under_way:
            self.call(expiry.step)

    def unload(self) -> None:
        """Lose the partition: what was not committed is answered by an error."""
        self.call(self.coordinator.unload)
        self.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def load(self, *, end: int | None = None) -> None:
        """Take over the partition on another broker, whose log ends there: by default it has what was committed."""
        end = self.committed_end if end is None else end
        assert end >= self.committed_end
        del self.log[end:]
        self.committed_end = end
        self.held.clear()
        self.markers.clear()
        self.coordinator = self.new_coordinator()
        for record in self.records():
            self.coordinator.apply(record)
        self.take_up()

    def records(self) -> list[TransactionRecord]:
        return [
            decode(memoryview(key), None if value is None else memoryview(value))
            for key, value in self.log
        ]

    def replayed(self) -> dict[str, Transaction]:
        """What the log says of each id."""
        states: dict[str, Transaction] = {}
        for record in self.records():
            if record.transaction is None:
                states.pop(record.transactional_id, None)
            else:
                states[record.transactional_id] = record.transaction
        return states

    def _write(self, write: Write[TransactionRecord]) -> None:
        if write.records and self.append_error is not ErrorCode.NONE:
            self._finish(write, self.append_error)
            return
        for record in write.records:
            self.log.append(encode(record))
            self.coordinator.apply(record)
        if self.holds_commits and self.committed_end < len(self.log):
            self.held.append((len(self.log), write))
        else:
            self.committed_end = len(self.log)
            self._finish(write, ErrorCode.NONE)

    def _finish(self, write: Write[TransactionRecord], error: ErrorCode) -> None:
        turn = self.turn()
        write.then(turn, error)
        self.run(turn)
