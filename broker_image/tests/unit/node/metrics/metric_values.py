"""The values of metric families, read by Prometheus' own parser."""

from collections.abc import Iterable

from logfleet.telemetry.exposition import Family, pieces
from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]


class MetricValues(dict[tuple[str, Labels], float]):
    """Values by name and labels."""

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.get((name, tuple(sorted(labels.items()))))

    def names(self) -> set[str]:
        return {name for name, _ in self}


def metric_values(families: Iterable[Family]) -> MetricValues:
    return read("".join(pieces(families)))


def read(text: str) -> MetricValues:
    return MetricValues(
        {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )
