"""Requests and answers of Fetch, for tests of its handler."""

from typing import Any

from logfleet.node.dispatch import ParkedRequest, RequestContext
from logfleet.node.handlers import fetch as handler
from logfleet.records.record import Record, build_batch, read_records
from logfleet.wire.messages import FetchRequest, FetchResponse

from broker_image.tests.unit.node.peer_rig import response_to

NOW = 1_700_000_000_000


def fetch(host: Any, asked: FetchRequest, context: RequestContext) -> Any:
    """The response, or an awaitable of it."""
    given = handler.fetch(host, asked, context)
    return response_to(given, context.peer) if isinstance(given, ParkedRequest) else given


def append(partition, *values: bytes) -> None:
    partition.append(build_batch([Record(None, value, NOW) for value in values]), NOW)


def request(*rows: tuple[Any, ...], **given: Any) -> FetchRequest:
    """rows: (topic, index, offset[, fields])."""
    topics: dict[str, list[Any]] = {}
    for topic, index, offset, *rest in rows:
        fields = {"partition_max_bytes": 1 << 20, **(rest[0] if rest else {})}
        row = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, **fields)
        topics.setdefault(topic, []).append(row)
    return FetchRequest(
        **{"min_bytes": 1, "max_bytes": 1 << 30, **given},
        topics=[
            FetchRequest.FetchTopic(
                topic=topic, topic_id=topic.encode().ljust(16, b"-"), partitions=rows
            )
            for topic, rows in topics.items()
        ],
    )


def rows_of(answer: FetchResponse) -> list[Any]:
    return [row for topic in answer.responses for row in topic.partitions]


def only_row(answer: FetchResponse) -> Any:
    (row,) = rows_of(answer)
    return row


def values(row: Any) -> list[bytes | None]:
    records: Any = row.records
    if isinstance(records, bytes):
        assert records == b""
        return []
    return [record.value for record in read_records(records.read())]
