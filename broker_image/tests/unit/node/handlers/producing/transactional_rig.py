"""A transactional producer on one connection to a broker whose own coordinator answers."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.producing.produce import produce
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.enlisting import Enlisting
from logfleet.records.batch import iterate_headers
from logfleet.records.control import Marker
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ProduceRequest

from broker_image.tests.unit.node.transactions.verifier_rig import Rig

NOW = 1_700_000_000_000
PRODUCER = 7
Sent = tuple[str, int, bytearray | None]


def batch(sequence: int = 0, epoch: int = 0, value: bytes = b"v", **given: Any) -> bytearray:
    stamp = ProducerStamp(
        given.pop("producer_id", PRODUCER), epoch, sequence, given.pop("transactional", True)
    )
    return build_batch([Record(b"k", value, NOW)], producer=stamp, **given)


def request(*sent: Sent, transactional_id: str | None = "t", acks: int = -1) -> ProduceRequest:
    topics: dict[str, list[Any]] = {}
    for topic, index, records in sent:
        data = None if records is None else memoryview(records)
        row = ProduceRequest.PartitionProduceData(index=index, records=data)
        topics.setdefault(topic, []).append(row)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, topic_id=topic.encode().ljust(16, b"-"), partition_data=rows
            )
            for topic, rows in topics.items()
        ],
    )


class Producer:
    """One connection to a broker whose own coordinator answers."""

    def __init__(self, host: Any, **config: Any) -> None:
        self.host = host
        self.rig = Rig(**config)
        self.rig.know_broker(1, 1)
        self.rig.lead(1)
        self.coordinator = self.rig.coordinators
        host.put(FEATURES.key(None), FeaturesValue(TRANSACTIONS))
        host.transactions = SimpleNamespace(enlisting=Enlisting(self.rig.verifier, lambda: 0))
        self.peer = Peer("PLAINTEXT")

    def start(self, *sent: Sent, version: int = 12, **given: Any) -> Any:
        """The answer, or what to await for it."""
        asked = request(*sent, **given)
        return produce(self.host, asked, RequestContext(self.peer, version, "c", 1))

    async def send(self, *sent: Sent, version: int = 12, **given: Any) -> list[Any]:
        """The rows of the answer, in its order."""
        answer = self.start(*sent, version=version, **given)
        if asyncio.iscoroutine(answer):
            answer = await answer
        encode(answer, version)  # nothing is set that this version lacks
        return [row for topic in answer.responses for row in topic.partition_responses]

    async def errors(self, *sent: Sent, version: int = 12, **given: Any) -> list[int]:
        return [row.error_code for row in await self.send(*sent, version=version, **given)]

    def at_the_coordinator(self, act: Callable[[], object]) -> None:
        self.coordinator.before_answer = act


def stored(partition: LeaderPartition) -> list[bytes | None]:
    piece: Any = partition.log.read(0, 1 << 20)
    data = b"" if piece is None else piece.read()
    return [
        record.value
        for position, header in iterate_headers(data)
        for record in read_records(data[position : position + header.size])
        if not header.is_control
    ]


def end(partition: LeaderPartition, epoch: int = 0, version: int = 1) -> None:
    """A marker is appended."""
    marker = Marker(PRODUCER, epoch, is_commit=False, coordinator_epoch=1)
    assert partition.append_markers([(marker, version)], NOW) == [ErrorCode.NONE]
