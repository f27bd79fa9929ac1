"""Runs a case on both brokers at the same time and judges what they answered."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Protocol

from e2e.compare.case import Case
from e2e.compare.differences import ABSENT, Difference, differences
from e2e.compare.reviewed import Place, ReviewedList
from e2e.compare.side import Seen, Side

TIMES_FROM_S = 5
"""How long before a case its times may lie and still be "now": clocks are read in more than one place."""


WHOLE = "answer"
"""The path of a difference of all that was answered: one side has closed the connection, say."""


@dataclass(frozen=True)
class Finding:
    """A difference and the request that it is an answer to."""

    place: Place
    asked: str
    difference: Difference


@dataclass
class Tally:
    """What came of one corpus."""

    cases: int = 0
    answers: int = 0
    listed: int = 0
    unlisted: list[Finding] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")

    @property
    def is_green(self) -> bool:
        return not self.unlisted and not self.broken and self.cases > 0


class Both(Protocol):
    """The two brokers, as they are now: one that was restarted is another Side."""

    @property
    def kafka(self) -> Side: ...
    @property
    def ours(self) -> Side: ...


class Oracle:
    """Both brokers and the list of reviewed differences. tell: what is done with those that are not listed."""

    def __init__(
        self, both: Both, reviewed: ReviewedList, tell: Callable[[Iterable[Finding]], None]
    ) -> None:
        self._both = both
        self._reviewed = reviewed
        self.tell = tell
        self._threads = ThreadPoolExecutor(2, "oracle")

    def of(self, both: Both) -> "Oracle":
        """One for other brokers, with the same list. It is to be closed as well."""
        return Oracle(both, self._reviewed, self.tell)

    def close(self) -> None:
        self._threads.shutdown()

    def judge(self, corpus: str, case: Case, tally: Tally) -> list[Finding]:
        """Run the case, count what came of it, and return the differences that are not listed; `tell` is left to the caller."""
        now_ms = (time.time_ns() // 1_000_000) - TIMES_FROM_S * 1000
        started = time.monotonic()
        runs = [
            self._threads.submit(_run, side, case, now_ms)
            for side in (self._both.kafka, self._both.ours)
        ]
        (theirs, kafka_failed), (own, ours_failed) = (run.result() for run in runs)
        tally.slowest = max(tally.slowest, (time.monotonic() - started, case.name))
        if kafka_failed is not None:  # Kafka does what the case expects, or the case is wrong
            tally.broken.append(f"{corpus}/{case.name}: {kafka_failed}")
        unlisted = self.compare(f"{corpus}/{case.name}", theirs, own, tally)
        if ours_failed is not None and kafka_failed is None and not unlisted:
            tally.broken.append(f"{corpus}/{case.name}: ours: {ours_failed}")
        return unlisted

    def compare(
        self, name: str, kafka: Sequence[Seen], ours: Sequence[Seen], tally: Tally
    ) -> list[Finding]:
        """The differences between the answers of a case, those that are listed counted, the others returned."""
        tally.cases += 1
        tally.answers += len(kafka)
        unlisted = []
        for finding in findings(name, kafka, ours):
            if self._reviewed.allows(finding.place, finding.difference):
                tally.listed += 1
            else:
                unlisted.append(finding)
        tally.unlisted += unlisted
        return unlisted


def _run(side: Side, case: Case, now_ms: int) -> tuple[list[Seen], str | None]:
    """What the side answered, and why the script stopped early, if it did."""
    side.begin(case.name, now_ms, exact_texts=case.exact_texts)
    failed = None
    try:
        case.run(side)
    except Exception as error:  # noqa: BLE001  a case that fails is told of, the others go on
        failed = f"{side.product}: {type(error).__name__}: {error}"[:2000]
    seen = side.seen
    side.end()
    return seen, failed


def findings(case: str, kafka: Sequence[Seen], ours: Sequence[Seen]) -> Iterator[Finding]:
    """All differences between the answers of a case, in their order."""
    for theirs, own in zip_longest(kafka, ours):
        either: Seen = theirs or own
        place = Place(case, either.api, either.version)
        left: Any = ABSENT if theirs is None else theirs.outcome
        right: Any = ABSENT if own is None else own.outcome
        for path, kafka_value, our_value in differences(left, right):
            difference = Difference(path or WHOLE, kafka_value, our_value)
            yield Finding(place, either.asked, difference)
