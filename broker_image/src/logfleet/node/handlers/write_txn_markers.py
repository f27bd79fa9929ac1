"""WriteTxnMarkers: ends transactions at the partitions that this broker leads.

Transaction coordinators send it, and Kafka's tools to abort a transaction that hangs at a partition
(KIP-664). Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

from typing import Any

from logfleet.auth.operations import CLUSTER, Operation
from logfleet.node.dispatch import Handler, ParkedRequest, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.transactions.marker_appends import MarkerCall
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse


def write_txn_markers(
    rooms: Rooms, request: WriteTxnMarkersRequest, context: RequestContext
) -> "WriteTxnMarkersResponse | _ParkedMarkers":
    """Append the markers, and answer once they are committed."""
    if not any(context.may(each, CLUSTER) for each in (Operation.ALTER, Operation.CLUSTER_ACTION)):
        refused = MarkerCall(request.markers)
        refused.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refused.response()
    call = rooms.transactions.marker_appends.append(request.markers)
    return _ParkedMarkers(call) if call.waiting else call.response()


class _ParkedMarkers(ParkedRequest):
    """A request whose markers wait for followers."""

    def __init__(self, call: MarkerCall) -> None:
        self._call = call
        call.on_done = self._done

    def _done(self) -> None:
        self.reply(self._call.response)


HANDLERS: dict[type, Handler[Any]] = {WriteTxnMarkersRequest: write_txn_markers}
