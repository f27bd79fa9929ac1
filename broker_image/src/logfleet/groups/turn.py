"""One turn of a coordinator: what time it is, and what was decided in it.

A coordinator method gets a fresh `Turn`, reads the time from it and leaves in it what the shell has
to do, in this order:

1. hand out `replies`;
2. log `notes`;
3. for each of `writes`, in order: append `records` as one batch. If the append succeeds, apply each record
   (`GroupCoordinator.apply`) before anything else reaches the coordinator; wait until the batch is committed.
   Then call `then` with a new turn and NONE, or with the error of the append or of the wait, and execute that turn too.
   A write without records only waits for all that was appended before it (a read that must not see what a failover would take back).

Writes of one coordinator finish in the order in which they were decided.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from logfleet.groups.records import GroupRecord
from logfleet.wire.errors import ErrorCode

Waiter = object
"""Whoever waits for a response. Made by the shell, handed back in a `Reply`, never looked into."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response to hand out now. The shell ignores a second reply to one waiter."""

    waiter: Waiter
    response: object


@dataclass(frozen=True, slots=True)
class Note:
    """A log line: one event name and its fields; `why` is a sentence where there is one."""

    event: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class Write:
    """Records to append as one batch, all or none, and what follows when they are committed or failed."""

    records: list[GroupRecord]
    then: Callable[["Turn", ErrorCode], None]


@dataclass(slots=True)
class Turn:
    """The time of a decision and what came of it.

    now_ms: monotonic clock, for deadlines; wall clocks jump.
    wall_ms: milliseconds since the epoch, for timestamps in records.
    """

    now_ms: int
    wall_ms: int
    replies: list[Reply] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def reply(self, waiter: Waiter, response: object) -> None:
        self.replies.append(Reply(waiter, response))

    def write(self, records: list[GroupRecord], then: Callable[["Turn", ErrorCode], None]) -> None:
        self.writes.append(Write(records, then))

    def note(self, event: str, **fields: object) -> None:
        self.notes.append(Note(event, fields))


def answer_to_append_error(error: ErrorCode) -> ErrorCode:
    """What a client of the coordinator is told when a record could not be written or committed.

    Source: CoordinatorOperationExceptionHelper; the client looks the coordinator up again on both.
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
