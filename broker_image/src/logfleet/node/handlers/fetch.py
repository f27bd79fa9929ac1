"""Fetch: whole batches as slices of segments, at once or when enough of them have arrived.

A request names its partitions, or continues a session (KIP-227, `logfleet.sessions`) that has them.
A request for more than there is waits on the partitions' logs: an append counts towards its
min_bytes, nothing polls. In a session, the session's partitions stay registered with the logs, so a
waiting request costs only what changed since the last. `fetch_calls` describes the waiting;
`follower_fetch` recognises by its bytes what followers send most.
"""

from typing import Any

from logfleet.io.clock import monotonic_ms
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.fetch_calls import FetchCall, SessionFetchCall, Wanted
from logfleet.node.handlers.fetch_rows import TOPIC_IDS_SINCE, replica_id
from logfleet.node.handlers.follower_fetch import remember
from logfleet.node.handlers.rooms import Rooms
from logfleet.sessions.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSession
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse


def fetch(
    rooms: Rooms, request: FetchRequest, context: RequestContext
) -> FetchResponse | FetchCall:
    """Read every partition from its offset.

    Wait up to max_wait_ms if there is less than min_bytes.
    """
    by_id = context.api_version >= TOPIC_IDS_SINCE
    wanted: Wanted = {}
    for topic in request.topics:
        name: Any = topic.topic_id if by_id else topic.topic
        for row in topic.partitions:
            wanted[name, row.partition] = row
    if request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION:
        call = FetchCall(rooms, request, context, wanted)
        reading = call.read()
        # the usual case of most clients: no session, no wait, no quota
        if reading.is_enough and context.usage is None:
            reading.record_sent()
            return reading.answer(reading.all_rows())
        return call.answer_or_wait(reading)
    forgotten = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    session = rooms.sessions.fetches.begin(
        request, wanted, forgotten, by_id=by_id, now_ms=rooms.clock.now_ms()
    )
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    if by_id and replica_id(request, context.api_version) >= 0:
        _record_follower(rooms, request, session, wanted)
        remember(rooms, context)
    call = (
        FetchCall(rooms, request, context, wanted)
        if session is None
        else SessionFetchCall(rooms, request, context, session)
    )
    return call.answer_or_wait(call.read())


def _record_follower(
    rooms: Rooms, request: FetchRequest, session: FetchSession | None, wanted: Wanted
) -> None:
    """Record what a follower with a broker epoch (KIP-903) fetches."""
    state = request.replica_state
    if state is not None:
        rooms.sessions.followers.fetched(
            state.replica_id, state.replica_epoch, session, wanted, monotonic_ms()
        )


HANDLERS: dict[type, Handler[Any]] = {FetchRequest: fetch}
