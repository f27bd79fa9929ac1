"""Groups: how far they are behind, and whether they are stuck."""

from collections.abc import Mapping
from typing import Any, Final

from logfleet.console.history import History
from logfleet.console.sample import GroupSample, Sample
from logfleet.console.views.paging import paged
from logfleet.console.views.texts import duration_text

CHART_POINTS: Final = 180
GROWING_S: Final = 60.0
"""A lag that has not been smaller for this long, and has grown, is growing."""


def group_row(
    sample: Sample, history: History, group: GroupSample, now_s: float, stuck_s: float
) -> dict[str, Any]:
    """One row of the list. behind_s: time since the oldest unread record, as far as it is known."""
    lags = sample.lag(group)
    lag = sum(lags.values()) if lags else None
    row = {
        "name": group.name,
        "state": group.state,
        "kind": group.kind,
        "members": len(group.members),
        "topics": sorted({key.topic for key in group.committed}),
        "lag": lag,
        "behind_s": _behind(sample, history, group, now_s),
        "growing": is_growing(history, group.name),
    }
    return {**row, "stuck": _stuck(history, group, lag or 0, now_s, stuck_s)}


def is_growing(history: History, name: str) -> bool:
    """Whether its lag is larger than at any time of the last GROWING_S before."""
    ring = history.lags.get(name)
    if len(ring.values) < 3:
        return False
    recent = [
        value
        for at, value in zip(ring.times, ring.values, strict=True)
        if at >= ring.times[-1] - GROWING_S
    ]
    return ring.values[-1] == max(recent) and ring.values[-1] > min(recent) and ring.rate() > 0


def _stuck(
    history: History, group: GroupSample, lag: int, now_s: float, stuck_s: float
) -> str | None:
    """Why it is stuck, in one sentence; None if it is not: it reads nothing although it could."""
    since = history.commits.changed_at(group.name)
    if not group.members or lag <= 0 or since is None or now_s - since < stuck_s:
        return None
    members = f"{len(group.members)} member{'s' * (len(group.members) != 1)}"
    grows = "lag grows" if is_growing(history, group.name) else "lag stays"
    return f"no commit for {duration_text(now_s - since)}, {members}, {grows}"


def _behind(sample: Sample, history: History, group: GroupSample, now_s: float) -> float | None:
    """By the time at which a topic's ends had as many records as are committed of it."""
    committed: dict[str, int] = {}
    ends: dict[str, int] = {}
    for key, offset in group.committed.items():
        committed[key.topic] = committed.get(key.topic, 0) + offset
    for topic in committed:
        ends[topic] = sum(end for end in sample.ends.get(topic, ()) if end > 0)
    behind = 0.0
    for topic, offset in committed.items():
        if offset >= ends[topic]:
            continue
        reached = history.ends.get(topic).reached(offset)
        if reached is None:
            return None  # longer ago than the history
        behind = max(behind, now_s - reached)
    return behind


def groups(
    sample: Sample, history: History, given: Mapping[str, str], now_s: float, stuck_s: float
) -> dict[str, Any]:
    """The list. given: filter, sort (name, lag), page."""
    wanted = given.get("filter", "").lower()
    rows = [
        group_row(sample, history, group, now_s, stuck_s)
        for name, group in sample.groups.items()
        if wanted in name.lower()
    ]
    if given.get("sort") == "name":
        rows.sort(key=lambda row: str(row["name"]))
    else:
        rows.sort(key=lambda row: (not row["stuck"], -(row["lag"] or 0), row["name"]))
    return paged("groups", rows, given)


def group(
    sample: Sample, history: History, name: str, now_s: float, stuck_s: float
) -> dict[str, Any] | None:
    """One group's page; None if there is none."""
    found = sample.groups.get(name)
    if found is None:
        return None
    lags = sample.lag(found)
    readers = {
        (topic, index): member
        for member in found.members
        for topic, indexes in member.assignment.items()
        for index in indexes
    }
    rows = []
    for key, committed in sorted(found.committed.items()):
        reader = readers.get((key.topic, key.partition))
        ends = sample.ends.get(key.topic, ())
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed": committed,
                "end": ends[key.partition] if key in lags else None,
                "lag": lags.get(key),
                "member": reader.member_id if reader else None,
            }
        )
    by_topic: dict[str, int] = {}
    for key, lag in lags.items():
        by_topic[key.topic] = by_topic.get(key.topic, 0) + lag
    return {
        **group_row(sample, history, found, now_s, stuck_s),
        "assignor": found.assignor,
        "error": found.error,
        "members": [
            {
                "id": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": sum(map(len, member.assignment.values())),
            }
            for member in found.members
        ],
        "lag_by_topic": by_topic,
        "offsets_count": len(rows),
        "offsets": rows[:1_000],
        "chart": history.lags.get(name).points(CHART_POINTS),
    }
