"""A follower's fetches of one partition that it has completely, without the codec.

With few records a follower sends one of them for each record (`logfleet.wire.single_fetch`), and
nearly all wait for the next record. They mean the same as to `fetch`, and nothing of the broker's
state is cached. Every unusual case is left to `fetch`, and then nothing has changed yet.
"""

import asyncio
from math import inf

from logfleet.config.throttle_keys import Side
from logfleet.io.clock import monotonic_ms
from logfleet.io.timers import Alarm
from logfleet.net.file_sender import Part
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.fetch_calls import FetchCall, SessionFetchCall
from logfleet.node.handlers.fetch_rows import record_progress
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.sessions.fetch_session import FetchSession, SessionPartition
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import CORRELATION_END
from logfleet.wire.messages import FetchRequest, FetchResponse
from logfleet.wire.single_fetch import (
    RESPONSE_END,
    VERSION,
    SingleFetch,
    SingleFetchRow,
    client_of,
    decode_single_fetch,
    encode_single_row,
)


def remember(rooms: Rooms, context: RequestContext) -> None:
    """A follower fetches by this connection: recognise its next requests by their bytes."""
    peer = context.peer
    if peer.repeat_end or context.api_version != VERSION or context.client_id is None:
        return
    client = client_of(context.client_id)
    peer.repeats = {client: FollowerFetch(rooms, context, CORRELATION_END + len(client))}
    peer.repeat_end = CORRELATION_END + len(client)


class FollowerFetch(SessionFetchCall):
    """All such requests of one connection, one after the other.

    A waiting one is its session's parked request.
    """

    api_key = api_of(FetchRequest).key
    api_version = VERSION

    def __init__(self, rooms: Rooms, context: RequestContext, body_at: int) -> None:
        """body_at: where the body of a request begins in its frame."""
        self._replica_state = FetchRequest.ReplicaState()
        request = FetchRequest(replica_state=self._replica_state)
        FetchCall.__init__(self, rooms, request, context, {})
        self._body_at = body_at
        self._deadline_s = inf
        self._alarm = Alarm(self._on_alarm)

    def __call__(self, frame: memoryview) -> "FollowerFetch | None":
        """The request, waiting; None if it has to be decoded instead."""
        fetch = decode_single_fetch(frame, self._body_at)
        if fetch is None or fetch.max_wait_ms <= 0 or fetch.min_bytes <= 0:
            return None
        session = self._rooms.sessions.fetches.find(fetch.session_id)
        if session is None or session.epoch != fetch.session_epoch or not session.privileged:
            return None
        row = session.partitions.get((fetch.topic_id, fetch.partition))
        if row is None or not session.has_no_other_due(row):
            return None
        partition = row.source
        if not isinstance(partition, LeaderPartition) or not _is_at_end(partition, fetch):
            return None
        error = record_progress(
            self._rooms,
            partition,
            (fetch.replica_id, fetch.replica_epoch),
            fetch.fetch_offset,
            fetch.log_start_offset,
        )
        if error is not ErrorCode.NONE:
            return None
        self._take(fetch, session, row)
        self._wait(fetch.min_bytes, ends_soon=row.high_watermark != partition.ends.high_watermark)
        session.parked = self
        return self

    def _take(self, fetch: SingleFetch, session: FetchSession, row: SessionPartition) -> None:
        """Continue the session by this request."""
        rooms, request, wanted = self._rooms, self._request, row.wanted
        wanted.current_leader_epoch = fetch.current_leader_epoch
        wanted.fetch_offset = fetch.fetch_offset
        wanted.last_fetched_epoch = fetch.last_fetched_epoch
        wanted.log_start_offset = fetch.log_start_offset
        wanted.partition_max_bytes = fetch.partition_max_bytes
        request.max_wait_ms, request.min_bytes = fetch.max_wait_ms, fetch.min_bytes
        request.max_bytes, request.session_id = fetch.max_bytes, fetch.session_id
        request.session_epoch = fetch.session_epoch
        self._replica_state.replica_id = fetch.replica_id
        self._replica_state.replica_epoch = fetch.replica_epoch
        session.mark_due(row)
        rooms.sessions.fetches.continue_session(session, rooms.clock.now_ms())
        rooms.sessions.followers.fetched(
            fetch.replica_id, fetch.replica_epoch, session, {}, monotonic_ms()
        )
        self._session, self._row = session, row

    def _end_within(self, seconds: float) -> None:
        deadline_s = asyncio.get_running_loop().time() + seconds
        if deadline_s < self._deadline_s:
            self._deadline_s = deadline_s
            self._alarm.set(deadline_s)

    def _on_alarm(self, now_s: float) -> float | None:
        if now_s < self._deadline_s < inf:
            return self._deadline_s
        self.end()
        return None

    def _read_again(self) -> FetchResponse | list[Part]:
        self._deadline_s = inf
        return self._lone_answer() or super()._read_again()

    def _lone_answer(self) -> list[Part] | None:
        """The answer if it has records of the one partition alone, else None."""
        rooms, session, row = self._rooms, self._session, self._row
        partition, wanted = row.source, row.wanted
        if (
            not isinstance(partition, LeaderPartition)
            or partition.leader_epoch != wanted.current_leader_epoch
            or not partition.is_current
            or not session.has_no_other_due(row)
            or self._refuse_overtaken() is not None
            or rooms.throttle.is_limited(Side.LEADER)
        ):
            return None
        log = partition.log
        limit = min(
            wanted.partition_max_bytes, self._request.max_bytes, rooms.config.fetch_max_bytes
        )
        try:
            records = log.read(wanted.fetch_offset, limit)
        except OSError:
            return None  # read again by `_read_again`, which handles the failure
        if records is None or isinstance(records, ErrorCode):
            return None
        data = FetchResponse.PartitionData(
            partition_index=row.key[1],
            high_watermark=partition.ends.high_watermark,
            log_start_offset=partition.ends.log_start_offset,
            records=records,
        )
        session.store_sent(row, data)
        size = len(records)
        rooms.partitions.replicated.bytes_out += size
        head = encode_single_row(
            SingleFetchRow(
                session.id,
                *row.key,
                data.high_watermark,
                partition.last_stable_offset,
                data.log_start_offset,
            ),
            self._correlation_id,
            size,
        )
        return [head, records, RESPONSE_END]


def _is_at_end(partition: LeaderPartition, fetch: SingleFetch) -> bool:
    """Whether the follower's log equals the leader's, so that there is nothing to read."""
    log = partition.log
    return (
        partition.is_current
        and partition.leader_epoch == fetch.current_leader_epoch
        and log.epochs.latest == fetch.last_fetched_epoch
        and partition.ends.log_end_offset == fetch.fetch_offset
    )
