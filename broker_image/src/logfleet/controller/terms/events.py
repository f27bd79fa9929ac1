"""What happens to a candidate for controller."""

import msgspec

from logfleet.controller.changes.election_writes import LogEndsByPartition
from logfleet.controller.terms.operations import Operation
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.store import Snapshot, TxnResult


class Now(msgspec.Struct, frozen=True):
    """The time of an event. ms: monotonic; wall_ms: since 1970."""

    ms: int
    wall_ms: int


class ImagePublished(msgspec.Struct, frozen=True):
    """This broker's image is a newer one. changes: what may differ from the last one stepped."""

    image: ClusterImage
    changes: Changes


class TimePassed(msgspec.Struct, frozen=True):
    """The time of the last WakeAt has come."""


class TurnCame(msgspec.Struct, frozen=True):
    """After `Yield`: others had their turn."""


class LeaseGranted(msgspec.Struct, frozen=True):
    """outcome: the id of the lease."""

    outcome: int | Exception


class LeaseLost(msgspec.Struct, frozen=True):
    """The store reports that the lease has ended."""

    lease: int


class LeaseRevoked(msgspec.Struct, frozen=True):
    lease: int
    error: Exception | None = None


class WriteAnswered(msgspec.Struct, frozen=True):
    """outcome: the store's reply to one attempt, or what the attempt failed with."""

    number: int
    outcome: TxnResult | Exception


class ReceiptsRead(msgspec.Struct, frozen=True):
    """The receipts of the term of that epoch."""

    epoch: int
    outcome: Snapshot | Exception


class Compacted(msgspec.Struct, frozen=True):
    epoch: int
    error: Exception | None = None


class LogEndsReported(msgspec.Struct, frozen=True):
    """found: SILENT for a replica that did not report in time."""

    epoch: int
    number: int
    found: LogEndsByPartition | Exception


class OperationRequested(msgspec.Struct, frozen=True):
    """An administrator, or this broker, wants a change. number: not used for another request."""

    number: int
    operation: Operation[object]


class OperationWithdrawn(msgspec.Struct, frozen=True):
    """Nobody waits for its answer any more."""

    number: int


class Stopped(msgspec.Struct, frozen=True):
    """The broker stops, or gives up being a candidate."""


Event = (
    ImagePublished
    | TimePassed
    | TurnCame
    | LeaseGranted
    | LeaseLost
    | LeaseRevoked
    | WriteAnswered
    | ReceiptsRead
    | Compacted
    | LogEndsReported
    | OperationRequested
    | OperationWithdrawn
    | Stopped
)
