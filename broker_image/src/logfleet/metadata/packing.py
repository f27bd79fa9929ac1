"""How many writes become few transactions, within what a store takes (`logfleet.metadata.store`)."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Get,
    Put,
    Txn,
    entry_bytes,
)


class Step(msgspec.Struct, frozen=True):
    """One write and what must hold for it; compares that several steps share are sent once per transaction."""

    write: Put | Delete | DeletePrefix
    compares: tuple[Compare, ...] = ()


def pack_steps(
    steps: Iterable[Step],
    *,
    first: Sequence[Compare],
    rest: Sequence[Compare],
    reserved_bytes: int = 0,
    steps_max: int = TXN_OPERATIONS_MAX,
) -> Iterator[Txn]:
    """The steps in their order, in as few transactions as the store's limits and steps_max allow.

    first: compares of the first transaction only; rest: those of each later one. reserved_bytes: left free in each, besides room for the longest
    key that it writes: for what it reads should its compares fail. What is too large by itself stands alone, and `check_txn` says so.
    """
    filling = _Filling(first, reserved_bytes)
    for step in steps:
        if not filling.has_room(step, steps_max):
            yield filling.txn()
            filling = _Filling(rest, reserved_bytes)
        filling.add(step)
    if filling.writes:
        yield filling.txn()


class _Filling:
    """A transaction that steps are added to. The first one always has room."""

    def __init__(self, compares: Iterable[Compare], reserved_bytes: int) -> None:
        self.compares = dict.fromkeys(compares)
        self.writes: list[Put | Delete | DeletePrefix] = []
        self._key_bytes = 0
        self._bytes = reserved_bytes + sum(map(entry_bytes, self.compares))

    def has_room(self, step: Step, steps_max: int) -> bool:
        if not self.writes:
            return True
        read_bytes = max(self._key_bytes, _key_bytes(step.write))
        return (
            len(self.writes) < steps_max
            and len(self.compares) + len(self._new(step)) <= TXN_OPERATIONS_MAX
            and self._bytes + self._bytes_of(step) + read_bytes <= TXN_BYTES_MAX
        )

    def add(self, step: Step) -> None:
        self._bytes += self._bytes_of(step)
        self._key_bytes = max(self._key_bytes, _key_bytes(step.write))
        self.compares.update(dict.fromkeys(step.compares))
        self.writes.append(step.write)

    def txn(self) -> Txn:
        return Txn(tuple(self.compares), tuple(self.writes))

    def _new(self, step: Step) -> list[Compare]:
        return [compare for compare in step.compares if compare not in self.compares]

    def _bytes_of(self, step: Step) -> int:
        return entry_bytes(step.write) + sum(map(entry_bytes, self._new(step)))


def _key_bytes(write: Put | Delete | DeletePrefix) -> int:
    """What reading its key takes, for which there is room whichever of the writes is read."""
    return 0 if isinstance(write, DeletePrefix) else entry_bytes(Get(write.key))
