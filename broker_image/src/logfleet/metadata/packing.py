"""Packs many writes into few transactions, within the store's limits.

`logfleet.metadata.store`.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Put,
    Txn,
    entry_bytes,
)


class Step(msgspec.Struct, frozen=True):
    """One write and its compares.

    A compare that several steps share is sent once per transaction.
    """

    write: Put | Delete | DeletePrefix
    compares: tuple[Compare, ...] = ()


def pack_steps(
    steps: Iterable[Step],
    *,
    first: Sequence[Compare],
    rest: Sequence[Compare],
    reserved: int = 0,
    reserved_bytes: int = 0,
    steps_max: int = TXN_OPERATIONS_MAX,
) -> Iterator[Txn]:
    """The steps in their order, in as few transactions as the store's limits and steps_max allow.

    first: compares of the first transaction only; rest: those of each later one.
    reserved, reserved_bytes: entries of each list, and bytes, that are left free in each
    transaction. A step that is too large gets a transaction of its own, which `check_txn` refuses.
    """
    entries_max = TXN_OPERATIONS_MAX - reserved
    steps_max = min(steps_max, entries_max)
    filling = _Filling(first, reserved_bytes)
    for step in steps:
        if not filling.has_room(step, steps_max, entries_max):
            yield filling.txn()
            filling = _Filling(rest, reserved_bytes)
        filling.add(step)
    if filling.writes:
        yield filling.txn()


class _Filling:
    """A transaction that is being filled. It always has room for its first step."""

    def __init__(self, compares: Iterable[Compare], reserved_bytes: int) -> None:
        self.compares = dict.fromkeys(compares)
        self.writes: list[Put | Delete | DeletePrefix] = []
        self._bytes = reserved_bytes + sum(map(entry_bytes, self.compares))

    def has_room(self, step: Step, steps_max: int, compares_max: int) -> bool:
        return not self.writes or (
            len(self.writes) < steps_max
            and len(self.compares) + len(self._new(step)) <= compares_max
            and self._bytes + self._bytes_of(step) <= TXN_BYTES_MAX
        )

    def add(self, step: Step) -> None:
        self._bytes += self._bytes_of(step)
        self.compares.update(dict.fromkeys(step.compares))
        self.writes.append(step.write)

    def txn(self) -> Txn:
        return Txn(tuple(self.compares), tuple(self.writes))

    def _new(self, step: Step) -> list[Compare]:
        return [compare for compare in step.compares if compare not in self.compares]

    def _bytes_of(self, step: Step) -> int:
        return entry_bytes(step.write) + sum(map(entry_bytes, self._new(step)))
