"""One transaction of an AddPartitionsToTxn: its part of the request, and of the answer."""

from collections.abc import Mapping
from typing import TypeAlias

from logfleet.metadata.image import ClusterImage
from logfleet.transactions.adding import Addition
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

Asked: TypeAlias = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
Added: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
PartitionErrors: TypeAlias = ErrorCode | Mapping[TopicPartition, ErrorCode]
"""One error for all partitions of a transaction, or one for each."""


def addition_of(asked: Asked, client_version: int) -> Addition:
    """What the coordinator is to add or verify."""
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    return Addition(
        asked.transactional_id,
        asked.producer_id,
        ProducerEpoch(asked.producer_epoch),
        partitions,
        client_version,
    )


def missing(image: ClusterImage, partition: TopicPartition) -> ErrorCode:
    """UNKNOWN_TOPIC_OR_PARTITION for a partition that the image does not have; else NONE."""
    topic = image.topic(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def topic_results(asked: Asked, errors: PartitionErrors) -> list[TopicResult]:
    """The rows of the answer, in the order of the request."""
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors
                    if isinstance(errors, ErrorCode)
                    else errors[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
