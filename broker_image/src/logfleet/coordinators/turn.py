"""One turn of a coordinator: the time, and the decisions made at that time.

A coordinator method gets a new `Turn`, reads the time from it, and adds the effects that the
runtime executes in this order:

1. send `replies`;
2. log `log_lines`;
3. for each of `writes`, in order: append `records` as one batch. If the append succeeds, apply each
   record (`Coordinator.apply`, or `replay` within a transaction) before the coordinator gets
   anything else, and wait until the batch is committed. Then call `then` with a new turn and NONE,
   or with the error of the append or of the wait, and execute that turn too. A write without
   records waits until all earlier appends are committed: a read must not return what a failover
   would lose.

Writes of one coordinator finish in the order in which they were decided.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from logfleet.records.record import ProducerStamp
from logfleet.wire.errors import ErrorCode

R = TypeVar("R")

Waiter = object
"""A parked request.

The caller makes it and gets it back in a `Reply`; a coordinator never inspects it.
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response to send now. The runtime ignores a second reply to one waiter."""

    waiter: Waiter
    response: object


@dataclass(frozen=True, slots=True)
class LogLine:
    """An event for the log and its fields; the field `why` is a sentence."""

    event: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class Write(Generic[R]):
    """Records to append as one batch, all or none.

    `then` runs once they are committed or have failed. producer: whose transaction they belong to;
    None outside of one.
    """

    records: list[R]
    then: Callable[["Turn[R]", ErrorCode], None]
    producer: ProducerStamp | None = None


@dataclass(slots=True)
class Turn(Generic[R]):
    """The time of a decision, and its effects. R: the coordinator's records.

    now_ms: monotonic clock, for deadlines; wall clocks jump.
    wall_ms: milliseconds since the epoch, for timestamps in records.
    """

    now_ms: int
    wall_ms: int
    replies: list[Reply] = field(default_factory=list)
    writes: list[Write[R]] = field(default_factory=list)
    log_lines: list[LogLine] = field(default_factory=list)

    def reply(self, waiter: Waiter, response: object) -> None:
        self.replies.append(Reply(waiter, response))

    def write(
        self,
        records: list[R],
        then: Callable[["Turn[R]", ErrorCode], None],
        producer: ProducerStamp | None = None,
    ) -> None:
        self.writes.append(Write(records, then, producer))

    def log(self, event: str, **fields: object) -> None:
        self.log_lines.append(LogLine(event, fields))


def answer_to_append_error(error: ErrorCode) -> ErrorCode:
    """The error that a coordinator's client gets if a record could not be written or committed.

    COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR make the client look up the coordinator again.
    Source: CoordinatorOperationExceptionHelper.
    """
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case (
            ErrorCode.MESSAGE_TOO_LARGE
            | ErrorCode.RECORD_LIST_TOO_LARGE
            | ErrorCode.INVALID_FETCH_SIZE
        ):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
