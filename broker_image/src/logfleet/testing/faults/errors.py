"""Puts errors into answers, row by row where an API has rows. PURE.

A request that changes something loses the rows that are hit before it is served; the rest is
carried out, and its answer gets rows with the error. Of a request that only reads, the answer's
rows are replaced. Where an API has one error for all, the request is not served.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from logfleet.testing.faults.layouts import KEYED, LAYOUTS, Layout
from logfleet.testing.faults.naming import TopicName, partition_of, topic_of
from logfleet.testing.faults.rules import Fault
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.errors import ErrorCode
from logfleet.wire.schema import load_table

_KEYS: Final = ("name", "topic", "topic_id", "index", "partition", "partition_index")
"""Fields that say what a row is about; its answer has them too."""
_ERRORS: Final = ("error_code", "partition_error_code")
_OF_FAILED: Final[dict[str, dict[str, object]]] = {
    "Produce": {"base_offset": -1},
    "Fetch": {"high_watermark": -1, "records": b"", "aborted_transactions": None},
    "ListOffsets": {"offset": -1, "timestamp": -1},
}
"""Other fields of a row with an error, where a broker sends no default."""
_COORDINATOR_KEYS_SINCE: Final = 4  # KIP-699
_GROUPS_SINCE: Final = 8  # KIP-709
_SINCE: Final = {"FindCoordinator": _COORDINATOR_KEYS_SINCE, "OffsetFetch": _GROUPS_SINCE}

Refuse = Callable[[Any, Any], None]
"""Called with the topic and the partition row of a request, for each that is taken out."""


def take_out(
    fault: Fault, request: msgspec.Struct, name_of: TopicName, on_refused: Refuse
) -> tuple[list[Any], bool]:
    """Remove the rows that are hit; the topics of the answer for them, and whether any row is left.

    `request` has only the other rows afterwards.
    """
    layout, code = LAYOUTS[fault.api], fault.code
    (array,) = layout.topics
    topic_class, row_class = _answered(fault.api, layout)
    refused, kept = [], []
    for topic in getattr(request, array):
        name = topic_of(topic, name_of)
        if layout.partitions is None:
            if fault.names_row(name, None):
                refused.append(failed(fault.api, topic_class, topic, code))
            else:
                kept.append(topic)
            continue
        rows = getattr(topic, layout.partitions)
        hit = [row for row in rows if fault.names_row(name, partition_of(row))]
        left = [row for row in rows if row not in hit]
        for row in hit:
            on_refused(topic, row)
        if hit:
            answer = topic_class(**_keys(topic, topic_class))
            errors = [failed(fault.api, row_class, row, code) for row in hit]
            setattr(answer, layout.answered_partitions or "", errors)
            refused.append(answer)
        if left or not hit:
            setattr(topic, layout.partitions, left)
            kept.append(topic)
    setattr(request, array, kept)
    return refused, bool(kept)


def refused_alone(api: str, refused: list[Any]) -> msgspec.Struct:
    """The answer to a request of which nothing is left."""
    return API_BY_NAME[api].response(**{LAYOUTS[api].answered_topics: refused})


def add(api: str, response: msgspec.Struct, refused: Iterable[Any]) -> None:
    """Add topics with errors to an answer; a topic that has rows there gets them as well."""
    layout = LAYOUTS[api]
    topics = getattr(response, layout.answered_topics)
    for each in refused:
        same = (t for t in topics if _keys(t, type(t)) == _keys(each, type(each)))
        topic = next(same, None) if layout.answered_partitions else None
        if topic is None:
            topics.append(each)
        else:
            rows = getattr(topic, layout.answered_partitions or "")
            rows += getattr(each, layout.answered_partitions or "")


def replace(fault: Fault, response: msgspec.Struct, name_of: TopicName) -> None:
    """Replace what was read of the topics or partitions that are hit by the error."""
    layout = LAYOUTS[fault.api]
    topics = getattr(response, layout.answered_topics)
    for at, topic in enumerate(topics):
        name = topic_of(topic, name_of)
        if layout.answered_partitions is None:
            if fault.names_row(name, None):
                topics[at] = failed(fault.api, type(topic), topic, fault.code)
            continue
        rows = getattr(topic, layout.answered_partitions)
        for place, row in enumerate(rows):
            if fault.names_row(name, partition_of(row)):
                rows[place] = failed(fault.api, type(row), row, fault.code)


def refuse(api: str, request: Any, version: int, code: ErrorCode) -> msgspec.Struct:
    """The answer to a request that is not served: one error, or one for each of its keys."""
    response = API_BY_NAME[api].response
    if api not in KEYED or version < _SINCE.get(api, 0):
        return response(error_code=code)
    asked, answered, key = KEYED[api]
    row_class = _class_of(response, answered)
    keys = [
        each if isinstance(each, str) else getattr(each, key) for each in getattr(request, asked)
    ]
    rows = [row_class(**{key: each}, error_code=code) for each in keys]
    return response(**{answered: rows})


def failed(api: str, row_class: Any, row: Any, code: ErrorCode) -> Any:
    """The row of an answer that has the error for what `row` is about."""
    field = next(each for each in _ERRORS if each in row_class.__struct_fields__)
    return row_class(**_keys(row, row_class), **{field: code}, **_OF_FAILED.get(api, {}))


def _keys(row: Any, row_class: Any) -> dict[str, Any]:
    fields = row_class.__struct_fields__
    if isinstance(row, int):
        return {"partition_index": row}
    return {name: getattr(row, name) for name in _KEYS if name in fields and hasattr(row, name)}


def _answered(api: str, layout: Layout) -> tuple[Any, Any]:
    """The classes of an answer's topics and, if they have any, of its partitions."""
    response = API_BY_NAME[api].response
    topic_class = _class_of(response, layout.answered_topics)
    if layout.answered_partitions is None:
        return topic_class, None
    schema = load_table()[response.__name__]
    fields = {field.python_name: field for field in schema.structs[topic_class.__name__]}
    return topic_class, getattr(response, fields[layout.answered_partitions].struct_name or "")


def _class_of(response: type[msgspec.Struct], field: str) -> Any:
    """The class of the elements of one of the message's arrays."""
    fields = {each.python_name: each for each in load_table()[response.__name__].fields}
    return getattr(response, fields[field].struct_name or "")
