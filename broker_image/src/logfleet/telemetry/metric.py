"""The description of a metric."""

from enum import StrEnum

import msgspec


class MetricType(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One metric of a broker.

    kafka: the MBeans of a Kafka broker with the same meaning, or empty.
    """

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    text: str
    kafka: str = ""


def counter(name: str, text: str, kafka: str = "", *, labels: str = "") -> Metric:
    """A total that grows while the broker runs; its name ends with _total.

    labels: separated by spaces.
    """
    assert name.endswith("_total"), name
    return Metric(name, MetricType.COUNTER, tuple(labels.split()), text, kafka)


def gauge(name: str, text: str, kafka: str = "", *, labels: str = "") -> Metric:
    """A current value."""
    assert not name.endswith("_total"), name
    return Metric(name, MetricType.GAUGE, tuple(labels.split()), text, kafka)


def histogram(name: str, text: str, kafka: str = "", *, labels: str = "") -> Metric:
    """Counts of values by size; NAME_bucket, NAME_sum and NAME_count."""
    return Metric(name, MetricType.HISTOGRAM, tuple(labels.split()), text, kafka)
