"""WriteTxnMarkers: ends transactions at the partitions that this broker leads.

Transaction coordinators send it, and Kafka's tools to abort a transaction that hangs at a partition
(KIP-664). A request of any length is taken, as in Kafka: a long one is appended in pieces, so that
the loop does other things in between. Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from logfleet.auth.operations import CLUSTER, Operation
from logfleet.io.slices import Slices
from logfleet.node.dispatch import Handler, ParkedRequest, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.transactions.marker_appends import (
    MarkerAppends,
    MarkerCall,
    MarkerResults,
    WritableMarker,
)
from logfleet.transactions.markers import ROWS_PER_REQUEST
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse


def write_txn_markers(
    rooms: Rooms, request: WriteTxnMarkersRequest, context: RequestContext
) -> "WriteTxnMarkersResponse | _ParkedMarkers | Coroutine[Any, Any, WriteTxnMarkersResponse]":
    """Append the markers, and answer once they are committed."""
    if not any(context.may(each, CLUSTER) for each in (Operation.ALTER, Operation.CLUSTER_ACTION)):
        refused = MarkerCall(request.markers)
        refused.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refused.response()
    appends = rooms.transactions.marker_appends
    if _is_long(request.markers):
        return _append_in_pieces(appends, request.markers)
    call = appends.append(request.markers)
    return _ParkedMarkers(call) if call.waiting else call.response()


class _ParkedMarkers(ParkedRequest):
    """A request whose markers wait for followers."""

    def __init__(self, call: MarkerCall) -> None:
        self._call = call
        call.on_done = self._done

    def _done(self) -> None:
        self.reply(self._call.response)


def _is_long(markers: Sequence[WritableMarker]) -> bool:
    """Whether it has more partitions than a coordinator of ours names in one request."""
    if len(markers) > ROWS_PER_REQUEST:
        return True
    rows = sum(len(topic.partition_indexes) for each in markers for topic in each.topics)
    return rows > ROWS_PER_REQUEST


async def _append_in_pieces(
    appends: MarkerAppends, markers: Iterable[WritableMarker]
) -> WriteTxnMarkersResponse:
    """Append all pieces one after another, then wait until all are committed."""
    slices, calls = Slices(), []
    slices.begin()
    for piece in _pieces(markers):
        call, done = appends.append(piece), asyncio.Event()
        call.on_done = done.set
        calls.append((call, done))
        await slices.pause_if_due()
    results = MarkerResults()
    for call, done in calls:
        if call.waiting:
            await done.wait()
            slices.begin()
        results.add(call)
        await slices.pause_if_due()
    return results.response()


def _pieces(markers: Iterable[WritableMarker]) -> Iterator[list[WritableMarker]]:
    """The markers in requests of about ROWS_PER_REQUEST partitions each."""
    piece: list[WritableMarker] = []
    rows = 0
    for marker in markers:
        for topic in marker.topics:
            indexes = topic.partition_indexes
            for start in range(0, len(indexes), ROWS_PER_REQUEST):
                part = indexes[start : start + ROWS_PER_REQUEST]
                topics = [msgspec.structs.replace(topic, partition_indexes=part)]
                piece.append(msgspec.structs.replace(marker, topics=topics))
                rows += len(part)
                if rows >= ROWS_PER_REQUEST:
                    yield piece
                    piece, rows = [], 0
    if piece:
        yield piece


HANDLERS: dict[type, Handler[Any]] = {WriteTxnMarkersRequest: write_txn_markers}
