"""What a runtime needs of a coordinator: a state machine over the records of one partition.

Source: Kafka's CoordinatorShard.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from logfleet.coordinators.turn import Turn

R = TypeVar("R")


class Coordinator(Protocol[R]):
    """The state of one partition of an internal topic, and the rules for its requests.

    It knows no clock and no log. Only `apply`, `replay` and `end_transaction` change the stored
    state; a request, a deadline or an event only adds effects to a turn. R: the records.
    """

    def apply(self, record: R) -> None:
        """Apply a record that was just appended to the log, outside a transaction."""

    def replay(self, record: R, log_offset: int, producer_id: int | None) -> None:  # noqa: ARG002
        """Apply a record that was read from the log, or was just appended in a transaction.

        log_offset: of the record. producer_id: of the transaction that it belongs to, whose end is
        not known yet; None outside of one. The log may be read a second time from the start of a
        batch; that changes nothing.
        """
        self.apply(record)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:  # noqa: ARG002
        """Apply a marker that was read from the log or just appended. By default nothing changes.

        The producer may have no records here.
        """
        return

    def take_up(self, begin_turn: Callable[[], Turn[R]]) -> Iterator[Turn[R]]:
        """The whole log was applied and is committed: set deadlines, continue what is unfinished.

        One short step per turn. The runtime executes each turn before it takes the next, and may
        call `tick` in between; requests come only after the last turn.
        """

    def unload(self, turn: Turn[R]) -> None:
        """This broker is no longer the coordinator: refuse parked requests, clear all deadlines.

        Nothing is applied afterwards.
        """

    def next_deadline_ms(self) -> int | None:
        """The latest time for the next `tick` (monotonic clock); None while there is none."""

    def tick(self, turn: Turn[R]) -> None:
        """Handle some of the deadlines that have passed; the rest stays due."""


class Walk(Protocol[R]):
    """Work on the whole state of a coordinator, in steps short enough for an event loop."""

    @property
    def is_under_way(self) -> bool:
        """Whether to call another step, once the turn of the last one was executed."""

    def step(self, turn: Turn[R]) -> None:
        """The next part of the work. The first step begins it."""
