"""A verifier on broker 1, an image that a test writes, and coordinators that answer what it says."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from logfleet.client.connection import Connection
from logfleet.coordinators.partition import partition_for
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue, Endpoint
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    TOPIC,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import Deleted, KeyValue
from logfleet.node.transactions.additions import Added, Asked
from logfleet.node.transactions.verifier import STATE_TOPIC, Verifier
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

PARTITIONS = 4
TOPIC_ID = uuids.to_text(STATE_TOPIC.encode()[:16])
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def answer_to(addition: Asked, error: int = 0) -> Added:
    """What a coordinator answers that says the same of all partitions."""
    return Added(
        transactional_id=addition.transactional_id,
        topic_results=[
            _Topic(
                name=topic.name,
                results_by_partition=[
                    _Row(partition_index=index, partition_error_code=error)
                    for index in topic.partitions
                ],
            )
            for topic in addition.topics
        ],
    )


def answers_to(request: AddPartitionsToTxnRequest, error: int = 0) -> AddPartitionsToTxnResponse:
    rows = [answer_to(each, error) for each in request.transactions]
    return AddPartitionsToTxnResponse(results_by_transaction=rows)


class Coordinators:
    """Those of this broker. asked: what came. errors: of the next answers, then `error`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.errors: list[ErrorCode] = []
        self.error = ErrorCode.NONE
        self.before_answer: Callable[[], object] = lambda: None

    async def add_partitions(self, asked: Asked, /) -> Added:
        self.asked.append(asked)
        await asyncio.sleep(0)
        self.before_answer()
        return answer_to(asked, self.errors.pop(0) if self.errors else self.error)


class Rig:
    """coordinators: of this broker, whose id is 1. tasks: what the verifier has started."""

    def __init__(self, **config: Any) -> None:
        given = {
            "node_id": 1,
            "inter_broker_listener_name": "PLAINTEXT",
            "request_timeout_ms": 5_000,
            "add_partitions_to_txn_retry_backoff_max_ms": 100,
            "add_partitions_to_txn_retry_backoff_ms": 1,
            "static": {},
        }
        self.image = ClusterImage()
        self.coordinators = Coordinators()
        self.tasks: list[asyncio.Task[None]] = []
        self.verifier = Verifier(
            SimpleNamespace(**given | config),  # type: ignore[arg-type]
            self.coordinators,
            image=lambda: self.image,
            spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)),
            connect=Connection.connect,
        )
        self._revision = 0

    def put(self, key: str, value: object) -> None:
        self._revision += 1
        builder = ImageBuilder(self.image)
        builder.add(KeyValue(key, msgspec.json.encode(value), self._revision, self._revision, 1))
        self.image, _ = builder.build(self._revision)

    def know_broker(self, broker_id: int, port: int) -> None:
        listeners = (Endpoint("PLAINTEXT", "127.0.0.1", port),)
        self.put(BROKER.key(broker_id), BrokerValue("i", listeners, "zone"))

    def unregister(self, broker_id: int) -> None:
        """The broker's lease has run out."""
        self._revision += 1
        builder = ImageBuilder(self.image)
        builder.add(Deleted(BROKER.key(broker_id)))
        self.image, _ = builder.build(self._revision)

    def lead(self, leader: int, transactional_id: str | None = None) -> None:
        """The image says that the broker coordinates this id, or all."""
        self.put(TOPIC.key(STATE_TOPIC), TopicValue(TOPIC_ID))
        only = None if transactional_id is None else partition_for(transactional_id, PARTITIONS)
        for index in range(PARTITIONS) if only is None else (only,):
            value = PartitionValue(
                (leader,), ((leader, BrokerEpoch(3)),), leader, LeaderEpoch(9), PartitionEpoch(1), 1
            )
            self.put(PARTITION.key((uuids.from_text(TOPIC_ID), index)), value)
        self.put(READY.key(uuids.from_text(TOPIC_ID)), ReadyValue(PARTITIONS))


def partitions(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("topic", index) for index in indexes]
