"""Prometheus' text format (0.0.4), piece by piece, so that the writer can do other work in between.

prometheus_client makes the whole text at once and an object for every sample, which would hold up
the event loop of a broker with many partitions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from logfleet.telemetry.histogram import Histogram
from logfleet.telemetry.metric import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

Row = tuple[str, float | Histogram] | None
"""Labels, as by `labels_text`, and value. None: rows are being prepared, there is none yet."""


class Family(NamedTuple):
    """A metric with its rows, which may be generated lazily."""

    metric: Metric
    rows: Iterable[Row]


def single(metric: Metric, value: float | Histogram) -> Family:
    """A metric without labels."""
    return Family(metric, (("", value),))


def labels_text(names: Sequence[str], values: Iterable[object]) -> str:
    """Names and values in the format, without the braces."""
    return ",".join(
        f'{name}="{str(value).translate(_ESCAPES)}"'
        for name, value in zip(names, values, strict=True)
    )


def labelled(
    metric: Metric, values: Iterable[tuple[Sequence[object], float | Histogram]]
) -> Family:
    """A metric with rows of label values and value."""
    return Family(metric, ((labels_text(metric.labels, each), value) for each, value in values))


def pieces(families: Iterable[Family]) -> Iterator[str]:
    """The text, a line or a histogram at a time; empty if rows were only prepared."""
    for metric, rows in families:
        name = metric.name
        text = metric.text.translate(_HELP_ESCAPES)
        yield f"# HELP {name} {text}\n# TYPE {name} {metric.kind}\n"
        for row in rows:
            if row is None:
                yield ""
                continue
            labels, value = row
            if isinstance(value, Histogram):
                yield _histogram(name, labels, value)
            elif labels:
                yield f"{name}{{{labels}}} {number(value)}\n"
            else:
                yield f"{name} {number(value)}\n"


def number(value: float) -> str:
    """A value in the format."""
    if isinstance(value, int):
        return str(int(value))  # True is 1
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text := repr(value), text)


def _histogram(name: str, labels: str, histogram: Histogram) -> str:
    before = f"{labels}," if labels else ""
    braces = f"{{{labels}}}" if labels else ""
    lines = []
    count = 0
    for bound, here in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        count += here
        lines.append(f'{name}_bucket{{{before}le="{bound}"}} {count}\n')
    lines.append(f"{name}_sum{braces} {number(histogram.total)}\n{name}_count{braces} {count}\n")
    return "".join(lines)
