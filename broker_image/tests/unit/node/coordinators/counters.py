"""A tiny kind of coordinator: it adds to counters and reads them.

A counter that nobody adds to for TTL_MS expires. Its record holds the total, so that a record may
be applied twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.records import UnknownRecord, prefix, prefixed
from logfleet.coordinators.timers import Deadline, Timers
from logfleet.coordinators.turn import Turn, Waiter, answer_to_append_error
from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.wire.errors import ErrorCode, MalformedMessage

TTL_MS = 60_000
COUNTERS_TOPIC = "__counters"

Answer = tuple[ErrorCode, int]


@dataclass(frozen=True)
class Count:
    """The total of a counter; None deletes it."""

    key: str
    total: int | None


def encode(record: Count) -> tuple[bytes, bytes | None]:
    total = record.total
    value = None if total is None else prefixed(0, total.to_bytes(8, "big"))
    return prefixed(0, record.key.encode()), value


def decode(key: memoryview, value: memoryview | None) -> Count:
    if prefix(key) != 0:
        raise UnknownRecord(f"kind {prefix(key)}")
    if value is not None and len(value) != 10:
        raise MalformedMessage("a total has 8 bytes")
    total = None if value is None else int.from_bytes(value[2:], "big")
    return Count(bytes(key[2:]).decode(), total)


class Counters(Coordinator[Count]):
    """The counters of one partition."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self._timers = Timers[Turn[Count]]()
        self._deadlines: dict[str, Deadline[Turn[Count]]] = {}
        self._parked: list[tuple[str, int, Waiter]] = []

    def apply(self, record: Count) -> None:
        if record.total is None:
            self.totals.pop(record.key, None)
        else:
            self.totals[record.key] = record.total

    def take_up(self, begin_turn: Callable[[], Turn[Count]]) -> Iterator[Turn[Count]]:
        for key in list(self.totals):
            turn = begin_turn()
            self._expire_later(turn, key)
            yield turn

    def unload(self, turn: Turn[Count]) -> None:
        for _, _, waiter in self._parked:
            turn.reply(waiter, (ErrorCode.NOT_COORDINATOR, -1))
        self._parked.clear()
        self._timers.clear()

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def tick(self, turn: Turn[Count]) -> None:
        self._timers.expire_until(turn.now_ms, turn, 10)

    def add(self, turn: Turn[Count], key: str, amount: int, waiter: Waiter) -> None:
        """Reply the new total."""
        total = self.totals.get(key, 0) + amount
        turn.write([Count(key, total)], partial(self._added, key, total, waiter))

    def _added(
        self, key: str, total: int, waiter: Waiter, turn: Turn[Count], error: ErrorCode
    ) -> None:
        turn.reply(waiter, (answer_to_append_error(error), total))
        if error is ErrorCode.NONE:
            self._expire_later(turn, key)
            for each in [each for each in self._parked if each[:1] == (key,) and each[1] <= total]:
                self._parked.remove(each)
                turn.reply(each[2], (ErrorCode.NONE, total))

    def read(self, turn: Turn[Count], key: str, waiter: Waiter) -> None:
        """Reply the total once it is committed."""
        total = self.totals.get(key, 0)
        turn.write(
            [],
            lambda turn, error: turn.reply(waiter, (answer_to_append_error(error), total)),
        )

    def wait(self, key: str, total: int, waiter: Waiter) -> None:
        """Reply once the counter has reached this total."""
        self._parked.append((key, total, waiter))

    def _expire_later(self, turn: Turn[Count], key: str) -> None:
        deadline = self._deadlines.setdefault(key, Deadline(partial(self._expire, key)))
        self._timers.schedule(deadline, turn.now_ms + TTL_MS)

    def _expire(self, key: str, turn: Turn[Count]) -> None:
        turn.write([Count(key, None)], lambda turn, error: turn.log("expired", error=error.name))


class Reset:
    """A walk that sets all counters to 0, one per step."""

    def __init__(self, counters: Counters) -> None:
        self._keys = list(counters.totals)

    @property
    def is_under_way(self) -> bool:
        return bool(self._keys)

    def step(self, turn: Turn[Count]) -> None:
        turn.write([Count(self._keys.pop(), 0)], lambda *_: None)


KIND = CoordinatorKind(
    topic=COUNTERS_TOPIC,
    noun="counter",
    new_coordinator=Counters,
    encode=encode,
    decode=decode,
)
