"""Where the requests of each API name topics, partitions and groups, and where answers have errors.

PURE. A layout says where the rows of a request and of its response are. An API without one is
answered by one error for the whole request, if its response has a place for that.
"""

from typing import Final, NamedTuple

from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.schema import load_table


class Layout(NamedTuple):
    """Rows of one API. Fields are those of the request, then those of the response.

    topics: arrays of topics, of which a version of the API has one. partitions: the array within a
    topic, of rows or of numbers; None if only topics have rows. is_read: answering changes nothing,
    so that a row's error may replace what was read.
    """

    topics: tuple[str, ...]
    partitions: str | None
    answered_topics: str = ""
    answered_partitions: str | None = None
    is_read: bool = False


_PARTITIONS: Final = Layout(("topics",), "partitions", "topics", "partitions")
_READ: Final = _PARTITIONS._replace(is_read=True)

LAYOUTS: Final = {
    "Produce": Layout(("topic_data",), "partition_data", "responses", "partition_responses"),
    "Fetch": Layout(("topics",), "partitions", "responses", "partitions", is_read=True),
    "ListOffsets": _READ,
    "OffsetForLeaderEpoch": _READ,
    "OffsetCommit": _PARTITIONS,
    "TxnOffsetCommit": _PARTITIONS,
    "OffsetDelete": _PARTITIONS,
    "DeleteRecords": _PARTITIONS,
    "AddPartitionsToTxn": Layout(
        ("v3_and_below_topics",),
        "partitions",
        "results_by_topic_v3_and_below",
        "results_by_partition",
    ),
    "Metadata": Layout(("topics",), None, "topics", is_read=True),
    "CreateTopics": Layout(("topics",), None, "topics"),
    "CreatePartitions": Layout(("topics",), None, "results"),
}
"""Each of these answers has an error for each row."""

NAMING_ONLY: Final = {
    "OffsetFetch": Layout(("topics",), "partition_indexes"),
    "DeleteTopics": Layout(("topics", "topic_names"), None),
    "DescribeProducers": Layout(("topics",), "partition_indexes"),
    "DescribeTopicPartitions": Layout(("topics",), None),
}
"""A fault may be limited to a topic of these, too."""

KEYED: Final = {
    "FindCoordinator": ("coordinator_keys", "coordinators", "key"),
    "OffsetFetch": ("groups", "groups", "group_id"),
    "DescribeGroups": ("groups", "groups", "group_id"),
    "DeleteGroups": ("groups_names", "results", "group_id"),
}
"""The array of a request, the array of its response with an error for each, and its key there."""

GROUPS: Final = frozenset(
    {
        "OffsetCommit",
        "OffsetFetch",
        "OffsetDelete",
        "TxnOffsetCommit",
        "AddOffsetsToTxn",
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "DescribeGroups",
        "DeleteGroups",
    }
)
"""APIs whose requests name groups."""


def naming_of(api: str) -> Layout | None:
    """Where requests of the API name topics; None if they name none."""
    return LAYOUTS.get(api) or NAMING_ONLY.get(api)


def takes_error(api: str) -> bool:
    """Whether an error can be put into this API's answers without its request being served."""
    return api in LAYOUTS or api in KEYED or _has_error(api)


def _has_error(api: str) -> bool:
    """Whether the answers of all its versions have one error for the whole request."""
    first = API_BY_NAME[api].served_min
    fields = load_table()[f"{api}Response"].fields
    return any(each.python_name == "error_code" and each.exists(first) for each in fields)
