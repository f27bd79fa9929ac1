"""Three whole brokers in this process, on one embedded metadata store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.store import Put, Txn
from logfleet.node.broker import Broker
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.record import Record, build_batch
from logfleet.wire.messages import CreateTopicsRequest, ProduceRequest

from broker_image.tests.unit.node.broker_rig import (
    ELSEWHERE,
    ask_broker,
    config,
    with_transactions,
)

NOW = 1_700_000_000_000
PATIENCE_S = 20


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.005)


class _Shared:
    """A store that outlives each of its brokers."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        """The fleet closes it."""


class Fleet:
    """brokers: those that run, by id."""

    def __init__(self, path: Path, store: SqliteStore, *, transactions: bool = False) -> None:
        self.brokers: dict[int, Broker] = {}
        self.store = store
        self._path = path
        self._config = config
        if transactions:  # each may leave, however few are left
            self._config = partial(with_transactions, transaction_state_log_min_isr="1")

    async def start(self, *broker_ids: int, **given: str) -> None:
        given = {"replica_fetch_backoff_ms": "100", **given}
        for broker_id in broker_ids:
            path = self._path / str(broker_id)
            made = Broker(
                self._config(
                    path,
                    **{**ELSEWHERE, "node.id": str(broker_id)},
                    broker_rack=f"z{broker_id}",
                    **given,
                ),
                open_store=self._open_store,
            )
            self.brokers[broker_id] = await made.__aenter__()

    async def _open_store(self, *_: object) -> Any:
        return _Shared(self.store)

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).__aexit__()

    async def create_topic(self, name: str, *replicas: int) -> None:
        assigned = CreateTopicsRequest.CreatableReplicaAssignment(
            partition_index=0, broker_ids=list(replicas)
        )
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assigned]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = await ask_broker(self.any, request, 7)
        assert answer.topics[0].error_code == 0, answer

    @property
    def any(self) -> Broker:
        return next(iter(self.brokers.values()))

    def state(self, topic: str) -> PartitionState:
        """As the newest of the brokers' images shows it."""
        image = max(
            (broker.image for broker in self.brokers.values()), key=lambda each: each.revision
        )
        found = image.topic(topic)
        assert found is not None
        return found.partitions[0]

    async def write(self, topic: str, **changes: Any) -> None:
        """Write the next state of the topic's partition by hand."""
        found = self.any.image.topic(topic)
        assert found is not None
        value = found.partitions[0].changed(**changes)
        key = PARTITION.key((found.id, 0))
        await self.store.txn(Txn(success=[Put(key, msgspec.json.encode(value))]))

    def leader(self, topic: str) -> LeaderPartition | None:
        """The partition where it is led, None while it is not."""
        led = [broker.rooms.partitions.get(topic, 0) for broker in self.brokers.values()]
        return next((each for each in led if each is not None), None)

    async def led(self, topic: str) -> tuple[Broker, LeaderPartition]:
        await until(lambda: self.leader(topic) is not None)
        return next(
            (broker, partition)
            for broker in self.brokers.values()
            if (partition := broker.rooms.partitions.get(topic, 0)) is not None
        )

    async def produce(self, topic: str, *values: bytes, acks: int = -1) -> Any:
        broker, _ = await self.led(topic)
        batch = bytes(build_batch([Record(None, value, NOW) for value in values]))
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await ask_broker(broker, request, 9)
        return answer.responses[0].partition_responses[0]

    def logs(self, topic: str) -> dict[int, bytes]:
        """The batches of each broker's replica."""
        topic_id = self.any.image.topic(topic).id  # type: ignore[union-attr]
        found = {}
        for broker_id, broker in self.brokers.items():
            replica = broker.rooms.partitions.replica(topic_id, 0)
            if replica is not None:
                read = replica.log.read(replica.log.log_start_offset, 1 << 30)
                found[broker_id] = b"" if read is None else read.read()  # type: ignore[union-attr]
        return found

    def high_watermarks(self, topic: str) -> set[int]:
        topic_id = self.any.image.topic(topic).id  # type: ignore[union-attr]
        found = [broker.rooms.partitions.replica(topic_id, 0) for broker in self.brokers.values()]
        return {-1 if replica is None else replica.high_watermark for replica in found}


@asynccontextmanager
async def fleet_of(
    path: Path, *broker_ids: int, transactions: bool = False
) -> AsyncIterator[Fleet]:
    """transactions: whether the fleet is at their feature level."""
    path.mkdir(exist_ok=True)
    store = await SqliteStore.open(path / "metadata")

    fleet = Fleet(path, store, transactions=transactions)
    try:
        await fleet.start(*broker_ids)
        yield fleet
    finally:
        for broker_id in list(fleet.brokers):
            await fleet.stop(broker_id)
        await store.close()
