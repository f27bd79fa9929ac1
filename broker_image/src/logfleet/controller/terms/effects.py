"""What the shell of a candidate for controller has to do. See `logfleet.controller.terms`."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from logfleet.controller.changes.election_writes import ReplicasToAsk
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.store import Txn
from logfleet.telemetry.decisions import Decision


class Write(msgspec.Struct, frozen=True):
    """Commit it once, and answer by WriteAnswered.

    attempt: from 1; an earlier one may have been applied, or may still be. cause: why leaders
    change by it, if the image does not show it.
    """

    number: int
    txn: Txn
    attempt: int = 1
    cause: str | None = None


class GrantLease(msgspec.Struct, frozen=True):
    """Answered by LeaseGranted. The lease is kept alive until it is revoked, or LeaseLost."""


class RevokeLease(msgspec.Struct, frozen=True):
    """Answered by LeaseRevoked."""

    lease: int


class ReadReceipts(msgspec.Struct, frozen=True):
    """Read all keys with that prefix. Answered by ReceiptsRead."""

    epoch: int
    prefix: str


class Compact(msgspec.Struct, frozen=True):
    """Drop the store's history up to that revision. Answered by Compacted."""

    epoch: int
    revision: int


class QueryLogEnds(msgspec.Struct, frozen=True):
    """Ask replicas how far their logs reach (`log_ends_query`). Answered by LogEndsReported."""

    epoch: int
    number: int
    image: ClusterImage
    asked: ReplicasToAsk


class WakeAt(msgspec.Struct, frozen=True):
    """Step TimePassed at that time, monotonic; None: not at all."""

    ms: int | None


class Yield(msgspec.Struct, frozen=True):
    """Long work: let others have their turn, then step TurnCame."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request: of its operation, or a Refusal."""

    number: int
    answer: object


class NotController(msgspec.Struct, frozen=True):
    """The request was not carried out here. It may be sent to the next controller."""

    number: int


class Committed(msgspec.Struct, frozen=True):
    """A write of the term is in the store. image: the newest when it was first sent."""

    image: ClusterImage
    txn: Txn
    cause: str | None


class Record(msgspec.Struct, frozen=True):
    """Record a decision that no write shows."""

    decision: Decision


class Report(msgspec.Struct, frozen=True):
    """Log an event. error: its traceback is logged too."""

    level: Literal["info", "warning", "error", "critical"]
    event: str
    facts: Mapping[str, object]
    error: Exception | None = None


class Fail(msgspec.Struct, frozen=True):
    """The broker must not go on: another store replies, or the machine has a fault."""

    error: Exception


Effect = (
    Write
    | GrantLease
    | RevokeLease
    | ReadReceipts
    | Compact
    | QueryLogEnds
    | WakeAt
    | Yield
    | Answer
    | NotController
    | Committed
    | Record
    | Report
    | Fail
)
Emit = Callable[[Effect], None]
