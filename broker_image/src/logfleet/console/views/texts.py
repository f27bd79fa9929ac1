"""Numbers, times and lines as people read them; the templates use them as filters."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24


def bytes_text(size: float | None) -> str:
    """A size; "-" if it is unknown."""
    if size is None or size < 0:
        return "-"
    value = float(size)
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def count_text(number: float | None) -> str:
    """A number with separators, rounded if it is a rate; "-" if it is unknown."""
    if number is None:
        return "-"
    if 0 < number < 10 and number != int(number):
        return f"{number:.1f}"
    return f"{number:,.0f}"


def duration_text(seconds: float | None) -> str:
    """As people round it: 4 s, 12 min, 3 h, 2 days; "-" if it is unknown."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s" if 0 < seconds < 3 else f"{seconds:.0f} s"
    for limit, size, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def time_text(milliseconds: int) -> str:
    """UTC, to the millisecond, as in ISO 8601; a number outside of years 1 to 9999 stays one."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def spark_points(points: Sequence[tuple[float, float]]) -> str:
    """The points of an SVG polyline in SPARK_WIDTH x SPARK_HEIGHT; "" for fewer than two."""
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    top = max(value for _, value in points) or 1.0
    width, height = SPARK_WIDTH - 2, SPARK_HEIGHT - 2
    return " ".join(
        f"{1 + width * (at - first) / (last - first or 1):.1f},{1 + height * (1 - value / top):.1f}"
        for at, value in points
    )


def percent(used: int, total: int) -> int | None:
    """Whole per cents; None if it is unknown."""
    return round(100 * used / total) if total > 0 and used >= 0 else None
