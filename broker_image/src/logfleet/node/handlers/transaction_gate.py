"""The APIs of transactions are served from their feature level on (`feature_level.TRANSACTIONS`).

Below it a request of them is treated as one of an API that is not served: ApiVersions leaves them
out, and the connection is closed.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from logfleet.controller.brokers.feature_level import transactions_allowed
from logfleet.metadata.image import ClusterImage
from logfleet.net.connection import CloseConnection
from logfleet.node.dispatch import Handler, Handlers, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.apis import Api, api_of
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

GATED: Final[frozenset[type[msgspec.Struct]]] = frozenset(
    {
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        ListTransactionsRequest,
        TxnOffsetCommitRequest,
        WriteTxnMarkersRequest,
    }
)


def served(apis: Iterable[Api], image: ClusterImage) -> list[Api]:
    """Those of the APIs that the cluster's feature level allows."""
    if transactions_allowed(image):
        return list(apis)
    return [api for api in apis if api.request not in GATED]


def gated(handlers: Handlers[Rooms]) -> Handlers[Rooms]:
    """The handlers; those of transactions close the connection below the level."""
    return {
        request: _behind_the_level(request, handler) if request in GATED else handler
        for request, handler in handlers.items()
    }


def _behind_the_level(request: type[msgspec.Struct], handler: Handler[Rooms]) -> Handler[Rooms]:
    key = api_of(request).key

    def handle(rooms: Rooms, request: Any, context: RequestContext) -> Any:
        if not transactions_allowed(rooms.metadata.image):
            raise CloseConnection(f"API {key} is not served")
        return handler(rooms, request, context)

    return handle
