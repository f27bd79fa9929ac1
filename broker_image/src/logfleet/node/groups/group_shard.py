"""The shell around one group coordinator: clock, log, commits and waiting requests.

It executes turns (`logfleet.coordinators.turn`). Everything runs on the loop; an answer that has to
wait for nothing is there when `execute` returns, so that a commit with one replica costs no task
and no future.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec
import structlog

from logfleet.coordinators.turn import Turn, Write
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.expiry import OffsetExpiry
from logfleet.groups.records import GroupRecord, encode_record
from logfleet.groups.topic_removal import TopicRemoval
from logfleet.groups.turn import GroupTurn
from logfleet.io.clock import monotonic_ms
from logfleet.log.validation import AppendResult, BatchRefusal, prepare_fully
from logfleet.net.peer import Peer
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

R = TypeVar("R")


class Waiter(Generic[R]):
    """Receives the answer to one request."""

    __slots__ = ("_arrived", "response")

    def __init__(self) -> None:
        self.response: R | None = None
        self._arrived: asyncio.Future[None] | None = None

    def answer(self, response: R) -> None:
        """Set the answer to the request; only the first counts."""
        if self.response is not None:
            return
        self.response = response
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def result(self, peer: Peer, otherwise: R) -> R | Awaitable[R]:
        """The answer, or what to await for it.

        otherwise: the answer if the connection is lost or the broker stops first.
        """
        return self.response if self.response is not None else self.wait(peer, otherwise)

    async def wait(self, peer: Peer, otherwise: R) -> R:
        """The answer, once it is there; see `result`."""
        if self.response is None:
            self._arrived = asyncio.get_running_loop().create_future()
            peer.on_leave = partial(self.answer, otherwise)
            try:
                await self._arrived
            finally:
                peer.on_leave = None
        assert self.response is not None
        return self.response


class _Pending(msgspec.Struct, frozen=True):
    """A write that is in the log and not committed. deadline: by the loop's clock, in seconds."""

    end_offset: int
    write: Write[GroupRecord]
    deadline: float


class GroupShard:
    """One partition of `__consumer_offsets` that this broker leads, with its coordinator.

    coordinator: has the state of the log. is_loaded: the log was read, all of it is committed and
    its groups have started; before that there are no requests. is_closed: leadership has ended, or
    loading failed. arm: called with the time (monotonic ms) by which `tick` must be called. spawn:
    starts a task that lives as long as the broker.
    """

    def __init__(
        self,
        partition: LeaderPartition,
        coordinator: GroupCoordinator,
        *,
        commit_timeout_ms: int,
        arm: Callable[[int], None],
        spawn: Callable[..., object],
        storage_failed: Callable[[LeaderPartition, OSError], None],
    ) -> None:
        self.partition = partition
        self.coordinator = coordinator
        self.is_loaded = False
        self.is_closed = False
        self._commit_timeout_s = commit_timeout_ms / 1000
        self._arm = arm
        self._spawn = spawn
        self._storage_failed = storage_failed
        self._end_offset = 0
        self._pending: deque[_Pending] = deque()
        self._deleted_while_loading: list[tuple[str, bytes]] = []
        self._is_removing = False
        self._log = log.bind(partition=partition.index)

    @staticmethod
    def turn() -> GroupTurn:
        """A turn (see `logfleet.coordinators.turn`) that begins now."""
        return Turn(monotonic_ms(), time.time_ns() // 1_000_000)

    def execute(self, turn: GroupTurn) -> None:
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

    def expire_offsets(self) -> bool:
        """Remove offsets whose retention is over, one step of it.

        False once all groups were checked, or if nothing can be written.
        """
        return self._step(self.coordinator.expiry)

    def _step(self, walk: OffsetExpiry | TopicRemoval) -> bool:
        if not self.is_loaded or self.is_closed:
            return False
        turn = self.turn()
        walk.step(turn)
        self.execute(turn)
        return walk.is_under_way

    # -- life

    def start_groups(self) -> Iterator[None]:
        """All records of the log were applied: start the groups, one per step.

        After the last step requests may come.
        """
        self._end_offset = self.partition.log.log_end_offset
        for turn in self.coordinator.take_up(self.turn):
            self.execute(turn)
            yield
            if self.is_closed:
                return
        self.is_loaded = True
        self.remove_topics(self._deleted_while_loading)

    def remove_topics(self, deleted: Sequence[tuple[str, bytes]]) -> None:
        """Topics were deleted: remove their offsets, once loading is done.

        deleted: names and ids (see TopicRemoval.add).
        """
        if not self.is_loaded:
            self._deleted_while_loading += deleted
        elif deleted and not self.is_closed:
            self.coordinator.removal.add(self.turn(), deleted)
            self.remove_due_topics()

    def remove_due_topics(self) -> None:
        """Remove the offsets of deleted topics, the first step now.

        What cannot be written is left for the next call.
        """
        if not self._is_removing and self.coordinator.removal.is_due:
            self._is_removing = self._step(self.coordinator.removal)
            if self._is_removing:
                self._spawn(self._remove())

    async def _remove(self) -> None:
        while self._is_removing:
            await asyncio.sleep(0)
            self._is_removing = self._step(self.coordinator.removal)

    def close(self) -> None:
        """Leadership has ended, or the log cannot be read: send waiting requests elsewhere."""
        self.is_closed = True
        turn = self.turn()
        self.coordinator.unload(turn)
        self.execute(turn)
        self._fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- writing

    def _write(self, write: Write[GroupRecord]) -> None:
        error = self._append(write.records) if write.records else ErrorCode.NONE
        if error is ErrorCode.NONE and self.is_closed:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            self._finish(write, error)
        elif not self._pending and self._end_offset <= self.partition.high_watermark:
            self._finish(write, ErrorCode.NONE)
        else:
            deadline = asyncio.get_running_loop().time() + self._commit_timeout_s
            self._pending.append(_Pending(self._end_offset, write, deadline))
            if len(self._pending) == 1:
                self._spawn(self._await_commits())

    def _append(self, records: list[GroupRecord]) -> ErrorCode:
        """Append and apply. The coordinator's state equals the log at every moment."""
        if self.is_closed or not self.partition.is_leading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.partition.is_at_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(key, value, now_ms) for key, value in map(encode_record, records)]
        )
        log = self.partition.log
        prepared = prepare_fully(batch, log.config, now_ms, log.partition)
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
                "group_records_rejected", error=result.error.name, reason=result.message
            )
            return result.error
        assert isinstance(result, AppendResult), "what is prepared needs no thread"
        self._end_offset = result.last_offset + 1
        for record in records:
            self.coordinator.apply(record)
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

    def _fail_pending(self, error: ErrorCode) -> None:
        while self._pending:
            self._finish(self._pending.popleft().write, error)

    def _finish(self, write: Write[GroupRecord], error: ErrorCode) -> None:
        turn = self.turn()
        write.then(turn, error)
        self.execute(turn)
