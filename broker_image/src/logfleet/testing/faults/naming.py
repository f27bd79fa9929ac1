"""What a request names: its client, topics, partitions and groups. PURE."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from logfleet.testing.faults.layouts import GROUPS, naming_of
from logfleet.testing.faults.rules import Named
from logfleet.wire.schema import ZERO_UUID

GROUP: Final = 0
"""The type of a coordinator's key in FindCoordinator: a group's (Kafka: CoordinatorType)."""
_TOPIC_FIELDS: Final = ("name", "topic")
_PARTITION_FIELDS: Final = ("index", "partition", "partition_index")

TopicName = Callable[[bytes], str | None]
"""The name of the topic with this id."""


def topic_of(row: Any, name_of: TopicName) -> str | None:
    """The topic that a row of a request or response is about."""
    if isinstance(row, str):
        return row
    name: str | None = next(
        (getattr(row, each, None) for each in _TOPIC_FIELDS if getattr(row, each, None)), None
    )
    topic_id = getattr(row, "topic_id", ZERO_UUID)
    return name_of(topic_id) if name is None and topic_id != ZERO_UUID else name


def partition_of(row: Any) -> int:
    """The partition that a row within a topic is about."""
    if isinstance(row, int):
        return row
    found: int = next(getattr(row, each) for each in _PARTITION_FIELDS if hasattr(row, each))
    return found


def named_by(api: str, request: msgspec.Struct, client_id: str | None, name_of: TopicName) -> Named:
    """What a request of the API names."""
    layout = naming_of(api)
    if layout is None:
        return Named(client_id, (), tuple(_groups(api, request)))
    arrays = [getattr(request, each) for each in layout.topics]
    topics = [topic for array in arrays for topic in array or ()]
    if api == "OffsetFetch":
        topics += [topic for group in _of(request, "groups") for topic in group.topics or ()]
    if api == "AddPartitionsToTxn":
        topics += [topic for each in _of(request, "transactions") for topic in each.topics]
    rows = tuple(
        (topic_of(topic, name_of), None if partition is None else partition_of(partition))
        for topic in topics
        for partition in (
            [None] if layout.partitions is None else getattr(topic, layout.partitions)
        )
    )
    groups = _of(request, "groups") if api == "OffsetFetch" else ()
    all_topics = [*arrays, *(group.topics for group in groups)]
    is_all = any(each is None for each in all_topics)
    return Named(client_id, rows, tuple(_groups(api, request)), is_all)


def _of(request: msgspec.Struct, field: str) -> Any:
    return getattr(request, field) or ()


def _groups(api: str, request: Any) -> Iterator[str]:
    """The groups that a request names."""
    if api not in GROUPS:
        return
    if api == "FindCoordinator":
        if request.key_type == GROUP:
            yield from request.coordinator_keys or [request.key]
        return
    for field in ("groups", "groups_names"):
        for each in getattr(request, field, None) or ():
            yield each if isinstance(each, str) else each.group_id
    group = getattr(request, "group_id", "")
    if group:
        yield group
