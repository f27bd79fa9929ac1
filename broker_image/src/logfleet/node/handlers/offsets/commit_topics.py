"""The topics of OffsetCommit and TxnOffsetCommit: a commit for one that does not exist is refused.

The rest of the request goes on without it, and the response has one row for each topic. Source:
KafkaApis.handleOffsetCommitRequest, handleTxnOffsetCommitRequest; OffsetCommitResponse.Builder.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode


class CommitTopic(Protocol):
    """A topic in a request or in its response."""

    name: str
    topic_id: bytes
    partitions: list[Any]


T = TypeVar("T", bound=CommitTopic)
A = TypeVar("A", bound=CommitTopic)


def split_unknown(
    image: ClusterImage,
    topics: Sequence[T],
    *,
    by_id: bool,
    refused: Callable[[T, Sequence[Any], ErrorCode], A],
) -> tuple[list[T], list[A]]:
    """The topics that exist, with both name and id, and a refusal for each of the others.

    Partitions that do not exist are moved from their topic to a refusal. by_id: whether the request
    names topics by id. refused: makes a refusal of some partitions of a topic.
    """
    found: list[T] = []
    refusals: list[A] = []
    for wanted in topics:
        topic = image.topic_by_id(wanted.topic_id) if by_id else image.topic(wanted.name)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refusals.append(refused(wanted, wanted.partitions, error))
            continue
        wanted.name, wanted.topic_id = topic.name, topic.id
        count = len(topic.partitions)
        missing = [each for each in wanted.partitions if not 0 <= each.partition_index < count]
        if missing:
            refusals.append(refused(wanted, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            wanted.partitions = [
                each for each in wanted.partitions if 0 <= each.partition_index < count
            ]
        if wanted.partitions:
            found.append(wanted)
    return found, refusals


def with_refused(answered: Sequence[A], refusals: Sequence[A]) -> list[A]:
    """One row for each topic: refused partitions beside the coordinator's."""
    topics = {topic.name: topic for topic in refusals if topic.name}
    unnamed = [topic for topic in refusals if not topic.name]
    for row in answered:
        refused_too = topics.setdefault(row.name, row)
        if refused_too is not row:
            refused_too.partitions += row.partitions
    return unnamed + list(topics.values())
