"""Coordinates the transactions of the `__transaction_state` partitions that this broker leads.

`logfleet.node.coordinators` loads and runs their coordinators. Here is what only transactions have:
their topic, and transactional ids that expire.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias, TypeVar

from logfleet.config.broker import BrokerConfig
from logfleet.config.topic import BrokerLayers
from logfleet.io.clock import Clock
from logfleet.metadata.image import ClusterImage
from logfleet.node.coordinators.internal_topic import CreateTopic, InternalTopic
from logfleet.node.coordinators.loader import ReadInThread
from logfleet.node.coordinators.runtime import CoordinatorRuntime
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.additions import (
    Added,
    Asked,
    PartitionErrors,
    addition_of,
    missing,
    topic_results,
)
from logfleet.node.transactions.transaction_shard import (
    MarkerEvents,
    TransactionShard,
    transaction_kind,
)
from logfleet.transactions.adding import Addition, refused_rows
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.coordinator import TransactionCoordinator
from logfleet.transactions.decision import TakeProducerId
from logfleet.transactions.records import TRANSACTION_STATE_TOPIC, TransactionRecord
from logfleet.transactions.state import TV2
from logfleet.transactions.turn import TransactionTurn
from logfleet.wire.errors import ErrorCode

R = TypeVar("R")

Question: TypeAlias = Callable[[TransactionCoordinator, TransactionTurn, Waiter[R]], None]
"""Asks a coordinator in a turn, on behalf of a waiter."""
_Runtime: TypeAlias = CoordinatorRuntime[
    TransactionRecord, TransactionCoordinator, TransactionShard
]


class TransactionCoordinators:
    """The transaction coordinators of one broker: a runtime with all partitions that are led here.

    image: the newest. create_topic: see CreateTopic; take_producer_id: see TakeProducerId; the
    other arguments: see CoordinatorRuntime.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        image: Callable[[], ClusterImage],
        create_topic: CreateTopic,
        take_producer_id: TakeProducerId,
        run_in_thread: ReadInThread,
        storage_failed: Callable[[LeaderPartition, OSError], None],
        is_hosted: Callable[[bytes, int], bool],
    ) -> None:
        limits = TransactionConfig(
            max_timeout_ms=config.transaction_max_timeout_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
        )
        self.events = MarkerEvents()
        self.runtime: _Runtime = CoordinatorRuntime(
            transaction_kind(limits, take_producer_id),
            partial(TransactionShard, events=self.events),
            clock=clock,
            write_timeout_ms=config.request_timeout_ms,
            run_in_thread=run_in_thread,
            storage_failed=storage_failed,
            is_hosted=is_hosted,
        )
        self._image = image
        self._expiry_interval_s = (
            config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        )
        self.topic = InternalTopic(
            TRANSACTION_STATE_TOPIC,
            event_prefix="transaction_state_topic",
            at_creation=config.transaction_state_log_num_partitions,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
            layers=BrokerLayers(config.static),
            hint="transactions need it; set transaction.state.log.replication.factor to what the "
            "cluster can hold",
            create_topic=create_topic,
            spawn=self.runtime.spawn,
        )

    def shards(self) -> Iterator[TransactionShard]:
        """The partitions of `__transaction_state` that are led here, loaded or not."""
        return self.runtime.shards()

    def shard_of(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """The loaded shard of a transactional id, or the error to answer."""
        partitions = self.topic.partitions(self._image())
        return self.runtime.shard_of(transactional_id, partitions)

    def ask(
        self, transactional_id: str, question: Question[R], refused: Callable[[ErrorCode], R]
    ) -> Waiter[R]:
        """A waiter for the coordinator's answer, which comes once all it rests on is committed.

        refused: the answer for an error if this broker does not coordinate the id.
        """
        waiter = Waiter[R]()
        shard = self.shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            waiter.answer(refused(shard))
        else:
            turn = shard.turn()
            question(shard.coordinator, turn, waiter)
            shard.execute(turn)
        return waiter

    def add(self, addition: Addition, *, verify_only: bool = False) -> Waiter[PartitionErrors]:
        """Add partitions to a transaction, or verify that they are in it."""

        def question(
            coordinator: TransactionCoordinator,
            turn: TransactionTurn,
            waiter: Waiter[PartitionErrors],
        ) -> None:
            (coordinator.verify if verify_only else coordinator.add)(turn, addition, waiter)

        return self.ask(addition.transactional_id, question, _for_all)

    def add_for_broker(self, asked: Asked) -> Waiter[PartitionErrors]:
        """One transaction of a broker's AddPartitionsToTxn."""
        addition, image = addition_of(asked, TV2), self._image()
        refused = refused_rows(addition.partitions, lambda partition: missing(image, partition))
        if not refused:
            return self.add(addition, verify_only=asked.verify_only)
        waiter = Waiter[PartitionErrors]()
        waiter.answer(refused)
        return waiter

    async def add_partitions(self, asked: Asked) -> Added:
        """The answer to one transaction that this broker itself asks about (see Verifier)."""
        outcome = await self.add_for_broker(asked).arrived()
        return Added(
            transactional_id=asked.transactional_id, topic_results=topic_results(asked, outcome)
        )

    async def run(self) -> None:
        """Load, and let ids expire, until cancelled."""
        await self.runtime.run(self._expire_ids())

    async def _expire_ids(self) -> None:
        """Remove ids that nobody has used for long, one short step at a time."""
        while True:
            await asyncio.sleep(self._expiry_interval_s)
            for shard in self.shards():
                is_unfinished = True
                while is_unfinished:
                    is_unfinished = shard.expire_ids()
                    await asyncio.sleep(0)


def _for_all(error: ErrorCode) -> PartitionErrors:
    return error
