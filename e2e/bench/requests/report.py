"""From rounds to figures, and the table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2e.bench.figures import Spread, spread
from e2e.bench.requests.load import Measured
from e2e.bench.requests.spec import Case

IDLE_KIB_AIM = 80 * 1024


@dataclass(frozen=True)
class Row:
    """One case: its rounds against the broker and, the round by its side, against the bare server (none: it has no such form)."""

    case: Case
    broker: list[Measured]
    bare: list[Measured]

    @property
    def ratios(self) -> list[float]:
        """Of each pair of rounds."""
        return [
            ours.cpu_s / theirs.cpu_s for ours, theirs in zip(self.broker, self.bare, strict=True)
        ]

    @property
    def ratio(self) -> float | None:
        """Of the medians: what is held against the aim."""
        if not self.bare:
            return None
        return per_request_us(self.broker).median / per_request_us(self.bare).median


def per_request_us(rounds: Sequence[Measured]) -> Spread:
    """Processor time per request in microseconds."""
    return spread([each.cpu_s / each.requests * 1e6 for each in rounds])


def per_record_us(rounds: Sequence[Measured]) -> Spread:
    """Processor time per record in microseconds."""
    return spread([each.cpu_s / each.records * 1e6 for each in rounds])


def system_share(rounds: Sequence[Measured]) -> float:
    """The kernel's share of the processor time, 0 to 1; counted in clock ticks, so over all rounds."""
    user = sum(each.cpu_user_s for each in rounds)
    system = sum(each.cpu_system_s for each in rounds)
    return system / (user + system) if user + system else 0.0


HEAD = (
    f"{'':<44}  {'broker, us of CPU':^25}  {'bare, us of CPU':^25}  ratio        kernel's share\n"
    f"{'least (median) of the rounds':<44}  {'per record':>12} {'per request':>12}  {'per record':>12} {'per request':>12}"
    "  (aim)        broker  bare"
)


def table(rows: Sequence[Row]) -> str:
    """One line per case."""
    return "\n".join([HEAD, *(line(row) for row in rows)])


def line(row: Row) -> str:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    aim = "" if row.case.aim is None else f"({row.case.aim})"
    shares = f"{system_share(row.broker):>6.0%}" + (
        f"{system_share(row.bare):>6.0%}" if row.bare else ""
    )
    return (
        f"{row.case.name:<44}  {_pair(row.broker)}  {_pair(row.bare)}  {ratio:<5} {aim:<6} {shares}"
    )


def _pair(rounds: Sequence[Measured]) -> str:
    if not rounds:
        return " " * 25
    return f"{_figure(per_record_us(rounds)):>12} {_figure(per_request_us(rounds)):>12}"


def _figure(found: Spread) -> str:
    digits = 2 if found.median < 10 else 0
    return f"{found.least:.{digits}f} ({found.median:.{digits}f})"


def as_json(row: Row) -> dict[str, Any]:
    """What is kept of a case."""
    kept: dict[str, Any] = {"broker": _rounds(row.broker)}
    if row.bare:
        kept |= {"bare": _rounds(row.bare), "ratio": round(row.ratio or 0, 3)}
        kept |= {"ratio_rounds": [round(ratio, 3) for ratio in row.ratios]}
    if row.case.aim is not None:
        kept["aim"] = row.case.aim
    return kept


def _rounds(rounds: Sequence[Measured]) -> dict[str, Any]:
    record, request = per_record_us(rounds), per_request_us(rounds)
    return {
        "us_per_record": {"least": round(record.least, 4), "median": round(record.median, 4)},
        "us_per_request": {"least": round(request.least, 2), "median": round(request.median, 2)},
        "requests_per_s": round(statistics.median(each.requests / each.wall_s for each in rounds)),
        "kernel_share": round(system_share(rounds), 2),
        "rounds": len(rounds),
    }


def memory(idle_kib: int, loaded_kib: int) -> str:
    """One line on resident memory."""
    return (
        f"resident memory of the broker: {idle_kib / 1024:.1f} MiB idle (aim {IDLE_KIB_AIM // 1024}), "
        f"{loaded_kib / 1024:.1f} MiB after the rounds"
    )
