"""Why brokers acted as they did: their decisions with the causes, in order, up to a bound.

Each broker keeps its own: they are needed when partitions are offline or the metadata store is
away, so they are stored in neither. Recording one takes microseconds and never fails; beyond
PER_SECOND_MAX of a kind they are counted in one record, so that a storm costs no more.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import astuple, replace

COUNT_MAX: Final = 10_000
BYTES_MAX: Final = 2 * 1024 * 1024
"""As many bytes as the files hold (`node.decisions.journal`)."""
AGE_MS_MAX: Final = 7 * 24 * 3_600_000
PER_SECOND_MAX: Final = 500
"""Decisions of one kind.

If a broker that leads thousands of partitions dies, there are as many elections; recording one
takes about 2 us.
"""
UNWRITTEN_BYTES_MAX: Final = 1024 * 1024
"""Bytes that wait to be written to disk; what exceeds this stays in memory only."""


class Kind(StrEnum):
    """The kind of a decision, or of an event of the broker that decides."""

    CONTROLLER_ELECTED = "controller_elected"
    CONTROLLER_RESIGNED = "controller_resigned"
    ELECTION = "election"
    UNCLEAN_ELECTION = "unclean_election"
    ELECTIONS_HELD = "elections_held"
    ISR_SHRINK = "isr_shrink"
    ISR_EXPAND = "isr_expand"
    REASSIGNMENT = "reassignment"
    REGISTERED = "registered"
    REGISTRATION_LOST = "registration_lost"
    SUSPECTED = "suspected"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    DRAINING = "draining"
    LEFT = "left"
    REFUSAL = "refusal"
    TRUNCATION = "truncation"
    DIRECTORY_FAILED = "directory_failed"
    STALL = "stall"
    FAILSAFE_BEGAN = "failsafe_began"
    FAILSAFE_ENDED = "failsafe_ended"
    MARKERS_STUCK = "markers_stuck"


class Decision(msgspec.Struct, frozen=True):
    """A decision, as its log line, its metric and the journal read it.

    cause: one sentence, in the present tense. topic, partition, broker: what it concerns. facts:
    what changed, as [from, to] if both are known.
    """

    kind: Kind
    cause: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    facts: Mapping[str, object] = {}


class RecordedDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision in the journal; the other fields are those of Decision.

    by: the broker that recorded it. number: its running number on that broker, so that gaps show.
    kind is text, because brokers of another version may have other kinds.
    """

    time_ms: int
    by: int
    number: int
    kind: str
    cause: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    facts: dict[str, object] = {}


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A selection of decisions; None or empty selects any. since: wall clock in milliseconds."""

    since: int = 0
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    kind: tuple[str, ...] = ()

    def matches(self, decision: RecordedDecision) -> bool:
        return (
            decision.time_ms >= self.since
            and (self.topic is None or decision.topic == self.topic)
            and (self.partition is None or decision.partition == self.partition)
            and (self.broker is None or decision.broker == self.broker)
            and (not self.kind or decision.kind in self.kind)
        )


_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
"""Encodes facts of any type: recording must not fail."""
_decoder: Final = msgspec.json.Decoder(RecordedDecision)


def parse(data: bytes) -> list[tuple[RecordedDecision, bytes]]:
    """The decisions in lines of JSON, each with its line.

    A damaged line (cut by a crash, changed by a disk) is skipped.
    """
    found = []
    for line in data.split(b"\n"):
        try:
            found.append((_decoder.decode(line), line + b"\n"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found


class _Rate:
    """The number of decisions of a kind that were recorded in this second.

    cause: of the last decision that was left out.
    """

    __slots__ = ("cause", "count", "second")

    def __init__(self) -> None:
        self.second = 0
        self.count = 0
        self.cause = ""


class Decisions:
    """The decisions of one broker; used by its event loop only.

    now_ms: the wall clock. dropped: decisions that are in no file.
    """

    def __init__(self, by: int, now_ms: Callable[[], int]) -> None:
        self.dropped = 0
        self._by = by
        self._now_ms = now_ms
        self._number = 0
        self._counts: Counter[Kind] = Counter()
        self._kept: deque[tuple[RecordedDecision, bytes]] = deque()
        self._kept_bytes = 0
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._rates = {kind: _Rate() for kind in Kind}

    def record(self, decision: Decision) -> None:
        """Count a decision, and keep it if not too many of its kind come. Never fails."""
        kind, now_ms = decision.kind, self._now_ms()
        self._counts[kind] += decision.broker is not None
        rate = self._rates[kind]
        if now_ms // 1000 != rate.second:
            self._sum_up(kind, rate, now_ms)
            rate.second = now_ms // 1000
        rate.count += 1
        if rate.count > PER_SECOND_MAX:
            rate.cause = decision.cause
            return
        self._add(RecordedDecision(now_ms, self._by, self._next(), *astuple(decision)))

    def count(self, *kinds: Kind) -> int:
        """How many decisions of these kinds named a broker since the start.

        An election that found no leader names none.
        """
        return sum(self._counts[kind] for kind in kinds)

    def record_left_out(self) -> None:
        """Record what a storm left out, once its second is over. Call this regularly."""
        now_ms = self._now_ms()
        for kind, rate in self._rates.items():
            if now_ms // 1000 != rate.second:
                self._sum_up(kind, rate, now_ms)

    def select(self, query: Query) -> list[bytes]:
        """The selected decisions as lines of JSON, oldest first."""
        self.record_left_out()
        self._forget_old()
        return [line for decision, line in self._kept if query.matches(decision)]

    def take_unwritten(self) -> bytes:
        """Lines not taken before, for the caller to write."""
        lines, self._unwritten = self._unwritten, []
        self._unwritten_bytes = 0
        return b"".join(lines)

    def insert_earlier(self, former: Iterable[tuple[RecordedDecision, bytes]]) -> None:
        """Insert the decisions from before this start; those recorded since get higher numbers."""
        early = [decision for decision, _ in self._kept]
        self._kept.clear()
        self._kept_bytes = 0
        self.take_unwritten()
        for decision, line in former:
            self._number = max(self._number, decision.number)
            self._keep(decision, line)
        for decision in early:
            self._add(replace(decision, number=self._next()))

    def _sum_up(self, kind: Kind, rate: _Rate, now_ms: int) -> None:
        left_out, rate.count = rate.count - PER_SECOND_MAX, 0
        if left_out > 0:
            cause = f"{left_out} more within a second are only counted; the last one: {rate.cause}"
            facts: dict[str, object] = {"left_out": left_out}
            self._add(RecordedDecision(now_ms, self._by, self._next(), kind, cause, facts=facts))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _add(self, decision: RecordedDecision) -> None:
        try:
            line = _encode(decision) + b"\n"
        except UnicodeEncodeError:  # a path may hold bytes that are no text
            self.dropped += 1
            return
        self._keep(decision, line)
        if self._unwritten_bytes + len(line) > UNWRITTEN_BYTES_MAX:
            self.dropped += 1
            return
        self._unwritten.append(line)
        self._unwritten_bytes += len(line)

    def _keep(self, decision: RecordedDecision, line: bytes) -> None:
        self._kept.append((decision, line))
        self._kept_bytes += len(line)
        while len(self._kept) > COUNT_MAX or self._kept_bytes > BYTES_MAX:
            self._forget_first()

    def _forget_old(self) -> None:
        oldest_ms = self._now_ms() - AGE_MS_MAX
        while self._kept and self._kept[0][0].time_ms < oldest_ms:
            self._forget_first()

    def _forget_first(self) -> None:
        _, line = self._kept.popleft()
        self._kept_bytes -= len(line)
