"""What tells one kind of coordinator from another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from logfleet.coordinators.coordinator import Coordinator

R = TypeVar("R")
C = TypeVar("C", bound=Coordinator[Any])


@dataclass(frozen=True, slots=True)
class CoordinatorKind(Generic[R, C]):
    """One kind of coordinator. R: its records. C: its state machine, a `Coordinator[R]`.

    topic: the internal topic with the records. noun: what it coordinates, in the singular.
    new_coordinator: one without state. encode: key and value of a record for the log; a value of
    None is a tombstone. decode: the record of a key and a value; raises UnknownRecord for a record
    of a newer broker, MalformedMessage for invalid bytes.
    """

    topic: str
    noun: str
    new_coordinator: Callable[[], C]
    encode: Callable[[R], tuple[bytes, bytes | None]]
    decode: Callable[[memoryview, memoryview | None], R]

    def event(self, what: str) -> str:
        """The name of a log event about one of them, as in group_record_skipped."""
        return f"{self.noun}_{what}"

    def events(self, what: str) -> str:
        """The name of a log event about all of a partition, as in groups_not_loaded."""
        return f"{self.noun}s_{what}"
