"""One fetch request: it reads its partitions, waits until there is enough, and answers.

A waiting request is answered in the step of the loop after the event it waited for, with all that
was appended in one step: many producers make one answer.
"""

import asyncio
from typing import Final, TypeAlias

from logfleet.io.timers import Timer
from logfleet.net.file_sender import Part
from logfleet.node.dispatch import ParkedRequest, RequestContext
from logfleet.node.handlers.fetch_rows import (
    TOPIC_IDS_SINCE,
    FetchRead,
    reads_stable,
    replica_id,
)
from logfleet.node.handlers.rooms import Rooms
from logfleet.replication.waiters import COMMITTED, STABLE, WRITTEN, Waiter
from logfleet.sessions.fetch_session import INITIAL_EPOCH, FetchSession, Key, next_epoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

HIGH_WATERMARK_S: Final = 0.02
"""Longest time until a follower learns of a new high watermark.

Consumers that read from the follower wait for it too (KIP-392). Kafka: replica.fetch.wait.max.ms.
"""

Wanted: TypeAlias = dict[Key, FetchRequest.FetchPartition]


class FetchCall(ParkedRequest, Waiter):
    """One request that names all it wants. While it waits it is a `Waiter` of its partitions."""

    def __init__(
        self, rooms: Rooms, request: FetchRequest, context: RequestContext, wanted: Wanted
    ) -> None:
        self._rooms = rooms
        self._request = request
        self._context = context
        self._wanted = wanted
        self._timers: list[Timer] = []

    def answer_or_wait(self, reading: FetchRead) -> "FetchResponse | FetchCall":
        """Answer with what was read, if that is enough or nothing more can come; else wait."""
        if reading.is_enough or self._request.max_wait_ms <= 0 or not self._waits_for(reading):
            return self._answer_or_throttle(reading)
        self._partitions = reading.partitions
        self._wait(reading.min_bytes - reading.bytes)
        self._watch(reading)
        return self

    def _wait(self, missing_bytes: int, *, ends_soon: bool = False) -> None:
        """Start to wait for these bytes, at most as long as the request allows.

        ends_soon: see `end_soon`.
        """
        self._missing_bytes = missing_bytes
        self._is_over, self._ends_soon = False, ends_soon
        wait_s = self._request.max_wait_ms / 1000
        self._end_within(min(wait_s, HIGH_WATERMARK_S) if ends_soon else wait_s)
        self._context.peer.on_leave = self.end
        self._rooms.sessions.parked.fetches += 1

    def _end_within(self, seconds: float) -> None:
        """End the wait after this time at the latest."""
        self._timers.append(self._rooms.workers.timers.add(seconds, self.end))

    def appended(self, size: int) -> None:
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.end()

    written = committed = stable = appended  # the partition calls only one of them

    def role_ended(self) -> None:
        self.end()

    def end_soon(self) -> None:
        """A follower has a new high watermark to learn: answer soon, with or without records."""
        if not self._ends_soon:
            self._ends_soon = True
            self._end_within(HIGH_WATERMARK_S)

    def end(self) -> None:
        """Answer in the next step of the loop."""
        if not self._is_over:
            self._is_over = True
            asyncio.get_running_loop().call_soon(self._answer_parked)

    def _answer_parked(self) -> None:
        self._rooms.sessions.parked.fetches -= 1
        self._stop_watching()
        self._context.peer.on_leave = None
        for timer in self._timers:
            timer.cancel()
        self.reply(self._read_again)

    def _read_again(self) -> FetchResponse | list[Part]:
        return self._answer_or_throttle(self.read(is_first_pass=False))

    def _answer_or_throttle(self, reading: FetchRead) -> FetchResponse:
        """The answer; beyond the client's quota one without records (KIP-219).

        Then it is as if nothing had been read.
        """
        usage = self._context.usage
        if usage is not None and replica_id(self._request, self._context.api_version) < 0:
            throttle_ms = usage.fetched(reading.answer(reading.all_rows()))
            if throttle_ms:
                return self._throttled(throttle_ms)
        return self._answer(reading)

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        return FetchResponse(throttle_time_ms=throttle_ms)

    def read(self, *, is_first_pass: bool = True) -> FetchRead:
        reading = FetchRead(self._rooms, self._request, self._context, is_first_pass=is_first_pass)
        for key, asked in self._wanted.items():
            reading.add(key, asked)
        return reading

    def _waits_for(self, reading: FetchRead) -> bool:
        """Whether more can come from any partition."""
        return bool(reading.partitions)

    def _watch(self, reading: FetchRead) -> None:
        is_replica = replica_id(self._request, self._context.api_version) >= 0
        of_consumers = STABLE if reads_stable(self._request) else COMMITTED
        for partition in reading.partitions:
            partition.add_waiter(self, WRITTEN if is_replica else of_consumers)

    def _stop_watching(self) -> None:
        for partition in self._partitions:
            partition.remove_waiter(self)

    def _answer(self, reading: FetchRead) -> FetchResponse:
        reading.record_sent()
        rows = reading.all_rows()
        session = None
        if self._request.session_epoch == INITIAL_EPOCH:
            privileged = replica_id(self._request, self._context.api_version) >= 0
            session = self._rooms.sessions.fetches.create(
                {key: self._wanted[key] for key, _ in rows},  # in the order of the answer
                by_id=self._context.api_version >= TOPIC_IDS_SINCE,
                privileged=privileged,
                reads_stable=not privileged and reads_stable(self._request),
                now_ms=self._rooms.clock.now_ms(),
            )
        if session is None:
            return reading.answer(rows)
        for key, row in rows:
            partition = session.partitions[key]
            partition.listen(reading.source(key))
            session.store_sent(partition, row, is_first_response=True)
        return reading.answer(rows, session.id)


class SessionFetchCall(FetchCall):
    """One request of a session: it reads only what is due and returns only what is new."""

    def __init__(
        self,
        rooms: Rooms,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession,
    ) -> None:
        super().__init__(rooms, request, context, {})
        self._session = session

    def read(self, *, is_first_pass: bool = True) -> FetchRead:
        reading = FetchRead(self._rooms, self._request, self._context, is_first_pass=is_first_pass)
        for partition in self._session.due():
            partition.listen(reading.add(partition.key, partition.wanted))
        return reading

    def _waits_for(self, reading: FetchRead) -> bool:
        return len(reading.unknown) < len(self._session.partitions)

    def _watch(self, reading: FetchRead) -> None:
        session = self._session
        session.parked = self
        if session.privileged and any(
            session.partitions[key].high_watermark != row.high_watermark
            for key, row in reading.rows
        ):
            self.end_soon()

    def _stop_watching(self) -> None:
        if self._session.parked is self:
            self._session.parked = None

    def _answer(self, reading: FetchRead) -> FetchResponse:
        session = self._session
        overtaken = self._refuse_overtaken()
        if overtaken is not None:
            return overtaken
        reading.record_sent()
        rows = [
            (key, row)
            for key, row in reading.all_rows()
            if session.store_sent(session.partitions[key], row)
        ]
        return reading.answer(rows, session.id)

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """The read rows are not sent: the partitions that were due are due again."""
        answer = self._refuse_overtaken() or FetchResponse(session_id=self._session.id)
        answer.throttle_time_ms = throttle_ms
        return answer

    def _refuse_overtaken(self) -> FetchResponse | None:
        """The error if another request continued the session while this one waited."""
        session = self._session
        if session.epoch == next_epoch(self._request.session_epoch):
            return None
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id
        )
