"""Finds the series that a PromQL expression names, to compare them with a broker's metrics.

Dashboards and alerts are checked with it. It does not parse the language.
"""

import re
from typing import NamedTuple

_SELECTOR = re.compile(r"\b([a-z_][a-z0-9_]*)\{([^}]*)\}")
_MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\bby \(([^)]*)\)")
_METRIC = re.compile(r"\b(?:logfleet|process)_[a-z0-9_]+\b")

OF_EVERY_TARGET = {"up"}
"""Series that Prometheus itself adds for each target, with the labels of the scrape."""


class Named(NamedTuple):
    """series: names, for histograms with suffixes such as _bucket.

    matched: labels by series. grouped: labels after `by`.
    """

    series: set[str]
    matched: dict[str, set[str]]
    grouped: set[str]


def named(expression: str) -> Named:
    """Return the series and labels that an expression names.

    Raises ValueError if it names a metric without selecting a cluster.
    """
    matched = {
        name: set(_MATCHER.findall(matchers)) for name, matchers in _SELECTOR.findall(expression)
    }
    bare = set(_METRIC.findall(re.sub(r"\{[^}]*\}", "", expression))) - set(matched)
    if bare or not matched:
        raise ValueError(f"without a selector: {sorted(bare)} in {expression}")
    grouped = {label.strip() for labels in _BY.findall(expression) for label in labels.split(",")}
    return Named(set(matched), matched, grouped)
