"""One partition that this broker leads, with its coordinator: clock, log, commits.

It executes turns (`logfleet.coordinators.turn`). Everything runs on the loop; an answer that has to
wait for nothing is there when `execute` returns, so that a write with one replica costs no task and
no future.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from logfleet.coordinators.coordinator import Coordinator, Walk
from logfleet.coordinators.turn import Turn, Write
from logfleet.io.clock import Clock
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.validation import Appended, Prepared, prepare_fully
from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.records.control import Marker
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode

R = TypeVar("R")
C = TypeVar("C", bound=Coordinator[Any])

log = structlog.get_logger(__name__)


class ShardState(Enum):
    """See `logfleet.node.coordinators`."""

    LOADING = auto()
    STARTING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


PREVIOUS_STATES: Final[dict[ShardState, set[ShardState]]] = {
    ShardState.LOADING: set(),
    ShardState.STARTING: {ShardState.LOADING},
    ShardState.ACTIVE: {ShardState.STARTING},
    ShardState.FAILED: {ShardState.LOADING},
    ShardState.CLOSED: set(ShardState),
}


class _Pending(msgspec.Struct, Generic[R], frozen=True):
    """A write that is in the log and not committed. deadline: by the loop's clock, in seconds."""

    end_offset: int
    write: Write[R]
    deadline: float


class CoordinatorShard(Generic[R, C]):
    """One partition of an internal topic that this broker leads, with its coordinator.

    coordinator: has the state of the log. write_timeout_ms: a write that is not committed within
    this time fails with REQUEST_TIMED_OUT. arm: called with the time (monotonic ms) by which `tick`
    must be called. spawn: starts a task that lives as long as the broker. storage_failed: takes a
    partition whose log cannot be written out of service.
    """

    def __init__(
        self,
        kind: CoordinatorKind[R, C],
        partition: LeaderPartition,
        coordinator: C,
        *,
        clock: Clock,
        write_timeout_ms: int,
        arm: Callable[[int], None],
        spawn: Callable[..., object],
        storage_failed: Callable[[LeaderPartition, OSError], None],
    ) -> None:
        self.partition = partition
        self.coordinator = coordinator
        self.state = ShardState.LOADING
        self._kind = kind
        self._clock = clock
        self._write_timeout_s = write_timeout_ms / 1000
        self._arm = arm
        self._spawn = spawn
        self._storage_failed = storage_failed
        self._end_offset = 0
        self._pending: deque[_Pending[R]] = deque()
        self._is_awaiting_commits = False
        self._log = log.bind(partition=partition.index)

    @property
    def is_loaded(self) -> bool:
        """Whether requests are served."""
        return self.state is ShardState.ACTIVE

    @property
    def is_closed(self) -> bool:
        """Whether requests have to go elsewhere, for as long as the shard exists."""
        return self.state is ShardState.FAILED or self.state is ShardState.CLOSED

    def turn(self) -> Turn[R]:
        """A turn that begins now."""
        clock = self._clock
        return Turn(clock.monotonic_ms(), clock.now_ms())

    def execute(self, turn: Turn[R]) -> None:
        """Do what the turn decided. Nothing may be awaited between a decision and this."""
        for line in turn.log_lines:
            self._log.info(line.event, **line.fields)
        for reply in turn.replies:
            assert isinstance(reply.waiter, Waiter)
            reply.waiter.answer(reply.response)
        for write in turn.writes:
            self._write(write)
        due_ms = self.coordinator.next_deadline_ms()
        if due_ms is not None:
            self._arm(due_ms)

    def tick(self) -> None:
        """Let the coordinator act on deadlines that have passed."""
        turn = self.turn()
        self.coordinator.tick(turn)
        self.execute(turn)

    def step(self, walk: Walk[R]) -> bool:
        """Take one step of a walk of the coordinator; whether there is another step to take.

        False, without a step, unless requests are served.
        """
        if not self.is_loaded:
            return False
        turn = self.turn()
        walk.step(turn)
        self.execute(turn)
        return walk.is_under_way

    def end_transactions(self, markers: Iterable[Marker]) -> None:
        """Apply markers that were just appended to the partition.

        Nothing may be awaited between the append and this, so that the state equals the log. What
        is read afterwards is answered once they are committed.
        """
        self._end_offset = self.partition.log.log_end_offset
        for marker in markers:
            self.coordinator.end_transaction(marker.producer_id, is_commit=marker.is_commit)

    # -- life

    def start(self) -> Iterator[None]:
        """The log was read and is committed: have the coordinator take it up, in short steps.

        After the last step requests may come, unless the shard was closed meanwhile.
        """
        self._enter(ShardState.STARTING)
        self._end_offset = self.partition.log.log_end_offset
        for turn in self.coordinator.take_up(self.turn):
            self.execute(turn)
            yield
            if self.is_closed:
                return
        self._enter(ShardState.ACTIVE)

    def fail(self) -> None:
        """The log cannot be decoded: this broker leads the partition, but does not coordinate."""
        self._enter(ShardState.FAILED)
        self._unload()

    def close(self) -> None:
        """Leadership has ended: send waiting requests elsewhere."""
        self._enter(ShardState.CLOSED)
        self._unload()

    def _enter(self, state: ShardState) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.state.name} to {state.name}"
        self.state = state

    def _unload(self) -> None:
        turn = self.turn()
        self.coordinator.unload(turn)
        self.execute(turn)
        while self._pending:
            self._finish(self._pending.popleft().write, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- writing

    def _write(self, write: Write[R]) -> None:
        error = self._append(write) if write.records else ErrorCode.NONE
        if error is ErrorCode.NONE and self.is_closed:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            self._finish(write, error)
        elif not self._pending and self._end_offset <= self.partition.high_watermark:
            self._finish(write, ErrorCode.NONE)
        else:
            deadline = asyncio.get_running_loop().time() + self._write_timeout_s
            self._pending.append(_Pending(self._end_offset, write, deadline))
            if not self._is_awaiting_commits:
                self._is_awaiting_commits = True
                self._spawn(self._await_commits())

    def _append(self, write: Write[R]) -> ErrorCode:
        """Append and apply. The coordinator's state equals the log at every moment."""
        if self.is_closed or not self.partition.is_leading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.partition.is_at_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [Record(key, value, now_ms) for key, value in map(self._kind.encode, write.records)]
        )
        log = self.partition.log
        prepared = prepare_fully(batch, log.config, now_ms, log.partition)
        if write.producer is not None and isinstance(prepared, Prepared):
            prepared = prepared.stamped(write.producer)
        try:
            result = (
                prepared
                if isinstance(prepared, BatchRefusal)
                else self.partition.append(prepared, now_ms)
            )
        except OSError as error:
            self._storage_failed(self.partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(result, BatchRefusal):
            self._log.error(
                self._kind.event("records_refused"),
                error=result.error.name,
                reason=result.message,
            )
            return result.error
        assert isinstance(result, Appended), "what is prepared needs no thread"
        self._end_offset = result.last_offset + 1
        if write.producer is None:
            for record in write.records:
                self.coordinator.apply(record)
        else:
            for offset, record in enumerate(write.records, result.base_offset):
                self.coordinator.replay(record, offset, write.producer.producer_id)
        return ErrorCode.NONE

    async def _await_commits(self) -> None:
        while self._pending:
            first = self._pending[0]
            error = ErrorCode.NONE
            try:
                async with asyncio.timeout_at(first.deadline):
                    await self.partition.wait_committed(first.end_offset)
            except TimeoutError:
                error = ErrorCode.REQUEST_TIMED_OUT
            except NotLeading:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self._pending and self._pending[0] is first:
                self._pending.popleft()
                self._finish(first.write, error)
        self._is_awaiting_commits = False

    def _finish(self, write: Write[R], error: ErrorCode) -> None:
        turn = self.turn()
        write.then(turn, error)
        self.execute(turn)
