"""What producers and brokers of a simulation say to each other about transactions.

Where Kafka's messages are what the product's rules take, they are sent as they are.
"""

import msgspec
from logfleet.transactions.adding import Addition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import EndTxnRequest, InitProducerIdRequest, WriteTxnMarkersRequest

WritableMarker = WriteTxnMarkersRequest.WritableTxnMarker


class TransactionRequest(msgspec.Struct, frozen=True):
    """A request about transactions."""


class Init(TransactionRequest, frozen=True):
    """InitProducerId. asker: the process that asks, for the checker."""

    request: InitProducerIdRequest
    asker: str


class Add(TransactionRequest, frozen=True):
    """AddPartitionsToTxn. Answered by an ErrorCode for each partition, or one for all."""

    addition: Addition
    verify_only: bool = False


class End(TransactionRequest, frozen=True):
    """EndTxn. number: which of its producer's transactions it means, for the checker."""

    request: EndTxnRequest
    version: int
    number: int


class Write(TransactionRequest, frozen=True):
    """WriteTxnMarkers."""

    markers: tuple[WritableMarker, ...]


class Refused(msgspec.Struct, frozen=True):
    """This broker does not coordinate the transactional id, or not yet."""

    error: ErrorCode
