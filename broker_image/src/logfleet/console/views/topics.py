"""Topics, and one topic with its partitions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logfleet.client.admin import ConfigEntry, ConfigSource
from logfleet.client.offsets import TopicPartition
from logfleet.console.history import History
from logfleet.console.sample import Sample
from logfleet.console.views.paging import paged
from logfleet.console.views.texts import duration_text

CHART_POINTS: Final = 180
SORTS: Final = ("name", "bytes", "records", "rate", "partitions")


def topic_rows(sample: Sample, history: History, wanted: str) -> list[dict[str, Any]]:
    """Topics whose names contain `wanted`, in any case; with it "" all but internal ones."""
    issues: dict[str, dict[str, int]] = {}
    for remark, keys in sample.partitions.remarks.items():
        for key in keys:
            of_topic = issues.setdefault(key.topic, {})
            of_topic[remark] = of_topic.get(remark, 0) + 1
    rows = []
    for name, topic in sample.topics.items():
        if wanted.lower() in name.lower() if wanted else not topic.internal:
            first = topic.partitions[0] if topic.partitions else None
            rows.append(
                {
                    "name": name,
                    "internal": topic.internal,
                    "partitions": len(topic.partitions),
                    "replicas": len(first.replicas) if first else 0,
                    "bytes": size if (size := sample.size(name)) >= 0 else None,
                    "records": sample.records(name),
                    "rate": history.ends.get(name).rate(),
                    "cleanup": _cleanup(sample.settings.get(name, {})),
                    "issues": issues.get(name, {}),
                }
            )
    return rows


def _cleanup(settings: Mapping[str, str]) -> str | None:
    policy, kept = settings.get("cleanup.policy"), settings.get("retention.ms", "")
    if policy is None or "delete" not in policy:
        return policy
    if kept == "-1":
        return f"{policy}, keeps all"
    return f"{policy}, {duration_text(int(kept) / 1000)}" if kept.isdecimal() else policy


def topics(sample: Sample, history: History, given: Mapping[str, str]) -> dict[str, Any]:
    """The list. given: filter, sort (of SORTS), only (issues), page."""
    rows = topic_rows(sample, history, given.get("filter", ""))
    if given.get("only") == "issues":
        rows = [row for row in rows if row["issues"]]
    sort = given.get("sort", "name")
    if sort in SORTS[1:]:
        rows.sort(key=lambda row: (-(row[sort] or 0), row["name"]))
    else:
        rows.sort(key=lambda row: str(row["name"]))
    return paged("topics", rows, given)


def topic(
    sample: Sample, history: History, name: str, given: Mapping[str, str]
) -> dict[str, Any] | None:
    """One topic's page, without its settings; None if there is none. given: page."""
    found = sample.topics.get(name)
    if found is None:
        return None
    min_isr = int(sample.settings.get(name, {}).get("min.insync.replicas", 1))
    begins, ends, sizes = (
        values.get(name, ()) for values in (sample.begins, sample.ends, sample.sizes)
    )
    rows = []
    for each in found.partitions:
        flow = sample.flows.get(TopicPartition(name, each.index))
        rows.append(
            {
                "partition": each.index,
                "leader": each.leader if each.leader >= 0 else None,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "begin": _at(begins, each.index),
                "end": _at(ends, each.index),
                "bytes": _at(sizes, each.index),
                "bytes_in": flow.bytes_in if flow else None,
                "bytes_out": flow.bytes_out if flow else None,
                "remarks": each.remarks(min_isr),
            }
        )
    own = [sample.flows[key] for key in sample.flows if key.topic == name]
    readers = [
        each.name
        for each in sample.groups.values()
        if any(key.topic == name for key in each.committed)
    ]
    return {
        **next(row for row in topic_rows(sample, history, name) if row["name"] == name),
        "id": found.topic_id.hex(),
        "min_insync_replicas": min_isr,
        "bytes_in": sum(flow.bytes_in for flow in own),
        "bytes_out": sum(flow.bytes_out for flow in own),
        "writers": sorted({flow.writer for flow in own if flow.writer}),
        "readers": sorted({flow.reader for flow in own if flow.reader}),
        "groups": sorted(readers),
        "moving": [key.partition for key in sample.moving if key.topic == name],
        "partition_rows": paged("rows", rows, given),
        "chart": history.ends.get(name).points(CHART_POINTS),
    }


def settings(entries: Iterable[ConfigEntry]) -> list[dict[str, Any]]:
    """Settings of a topic with where each value comes from, the topic's own first."""
    rows = [
        {
            "key": each.name,
            "value": "(hidden)" if each.sensitive else each.value,
            "source": each.source.name.lower().removesuffix("_config").replace("_", " "),
            "own": each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG,
        }
        for each in entries
    ]
    return sorted(rows, key=lambda row: (not row["own"], row["source"] == "default", row["key"]))


def _at(values: Any, index: int) -> int | None:
    return values[index] if index < len(values) and values[index] >= 0 else None
