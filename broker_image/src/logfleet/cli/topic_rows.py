"""The rows of `logfleet topic list`: pure, from what brokers report."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from logfleet.client.figures.topics import TopicFigures
from logfleet.client.metadata import Topic
from logfleet.wire.uuids import to_text

ISSUES: Final = {
    "offline": "offline",
    "under_min_isr": "under min.insync.replicas",
    "under_replicated": "under-replicated",
}
SORTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "name": lambda row: row["name"],
    "bytes": lambda row: -(row["bytes"] or 0),
    "records": lambda row: -(row["records"] or 0),
    "rate": lambda row: -(row.get("rate") or 0),
    "partitions": lambda row: -row["partitions"],
}
"""Numbers begin with the largest."""


def chosen_topics(topics: Sequence[Topic], like: str | None, *, internal: bool) -> list[Topic]:
    """Those whose name matches the shell pattern `like`; internal ones only with `internal`."""
    return [
        each
        for each in topics
        if (internal or not each.internal) and (like is None or fnmatchcase(each.name, like))
    ]


def topic_row(
    topic: Topic, figures: TopicFigures, min_isr: int, *, brokers: int, cleanup: str | None
) -> dict[str, Any]:
    """The row for JSON. brokers: how many there are; one replica is an issue where two could be."""
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replicas": replicas_of(topic),
        "bytes": figures.bytes,
        "records": figures.records,
        "cleanup": cleanup,
        "issues": issues_of(topic, min_isr, brokers),
        "id": to_text(topic.topic_id),
    }


def replicas_of(topic: Topic) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def issues_of(topic: Topic, min_isr: int, brokers: int) -> list[str]:
    """What partitions lack, the worst first, with the number of such partitions."""
    counts = Counter(remark for each in topic.partitions for remark in each.remarks(min_isr))
    found = [f"{counts[remark]} {text}" for remark, text in ISSUES.items() if counts[remark]]
    if brokers > 1 and replicas_of(topic) == 1:
        found.append("one replica")
    return found


def sorted_rows(rows: Collection[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """By one of SORTS, and by name where that is equal."""
    return sorted(rows, key=lambda row: (SORTS[by](row), row["name"]))
