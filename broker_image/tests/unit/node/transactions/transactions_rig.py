"""A broker for handlers of transactions; it coordinates the only partition of their topic."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from logfleet.config.broker import broker_config
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.transaction_coordinators import TransactionCoordinators
from logfleet.node.transactions.transaction_shard import TransactionShard
from logfleet.transactions.markers import MarkerAnswer, MarkersDue
from logfleet.transactions.records import TRANSACTION_STATE_TOPIC
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest, InitProducerIdResponse
from logfleet.wire.refusal import Refusal

from broker_image.tests.unit.clocks import ManualClock
from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition, open_log

FIRST_PRODUCER_ID = 1_000


class TransactionsRig:
    """host: the broker, whose cluster is at the feature level of transactions.

    created: topics that were to be created, with their configs. due: markers that became due.
    closed: shards that ended. ids_left: whether there are producer ids.
    """

    def __init__(self, host: Any, path: str, **config: str) -> None:
        self.host = host
        self.path = path
        self.clock = ManualClock()
        self.created: list[tuple[str, int, int, Mapping[str, str]]] = []
        self.due: list[tuple[TransactionShard, MarkersDue]] = []
        self.closed: list[TransactionShard] = []
        self.ids_left = True
        self._ids = iter(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 1_000))
        host.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS))
        self.coordinators = TransactionCoordinators(
            broker_config({name.replace("_", "."): value for name, value in config.items()}),
            clock=self.clock,
            image=lambda: host.image,
            create_topic=self.create_topic,
            take_producer_id=lambda: next(self._ids) if self.ids_left else None,
            run_in_thread=host.run_in_thread,
            storage_failed=host.storage_failed,
            is_hosted=lambda *_: True,
        )
        self.coordinators.events.on_due.append(self._markers_due)
        self.coordinators.events.on_closed.append(self.closed.append)
        host.transactions = SimpleNamespace(coordinators=self.coordinators)

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> Refusal | None:
        self.created.append((name, partitions, replication_factor, configs))
        return None

    def _markers_due(self, shard: TransactionShard, due: Sequence[MarkersDue]) -> None:
        self.due += [(shard, each) for each in due]

    def write_markers(self) -> list[MarkersDue]:
        """All partitions get the markers that are due."""
        written, self.due = self.due, []
        for shard, due in written:
            shard.markers_written(MarkerAnswer(shard, due.key, due.partitions))
        return [due for _, due in written]

    async def init(self, transactional_id: str = "a") -> tuple[int, int]:
        """The producer id and epoch of another start of a producer."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        waiter: Waiter[InitProducerIdResponse] = self.coordinators.ask(
            transactional_id,
            lambda it, turn, waiter: it.init(turn, request, 5, waiter),
            lambda error: InitProducerIdResponse(error_code=error),
        )
        response = await waiter.arrived()
        assert response.error_code == ErrorCode.NONE
        return response.producer_id, response.producer_epoch

    def lead(self) -> LaggingPartition:
        """Lead the only partition; running coordinators then load it."""
        self.host.know_topic(TRANSACTION_STATE_TOPIC, {0: 1})
        partition = LaggingPartition(open_log(self.path, TRANSACTION_STATE_TOPIC))
        self.host.partitions.add(partition)
        self.coordinators.runtime.led(partition)
        return partition

    def lose(self, partition: LeaderPartition) -> None:
        """Another broker leads the partition now."""
        self.host.partitions.remove(partition)
        self.coordinators.runtime.lost(partition)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.coordinators.run())
        yield
        task.cancel()
        await asyncio.wait([task])

    async def loaded(self) -> TransactionShard:
        """The shard, once it serves requests."""
        shards = self.coordinators.shards
        while not all(shard.is_loaded for shard in shards()):  # noqa: ASYNC110  no event for it
            await asyncio.sleep(0)
        return self.shard()

    @asynccontextmanager
    async def coordinating(self) -> AsyncIterator[LaggingPartition]:
        """Lead the partition and have it loaded."""
        async with self.running():
            partition = self.lead()
            await self.loaded()
            yield partition

    def shard(self) -> TransactionShard:
        (shard,) = self.coordinators.shards()
        return shard
