"""Enlists partitions of this broker in transactions before something is appended to them.

Only the first batch of a transaction in a partition needs it: afterwards the log shows that the
transaction is open, until its marker comes. `logfleet.log.verification` says what must hold when
the answer of the coordinator is there.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from logfleet.log.names import TopicPartition
from logfleet.log.producers.states import SeenBatch
from logfleet.log.verification import Guard
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.verifier import Client, Verifier
from logfleet.records.batch import NO_SEQUENCE, BatchHeader
from logfleet.wire.errors import ErrorCode

NOT_NOW: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""The coordinator could not answer, or refused another partition of the same request."""
_SENT_AGAIN: Final = NOT_NOW | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""After these the client sends the same batch again: later ones must not overtake it."""


class ProducerBatch(NamedTuple):
    """A transactional batch of a Produce request, and the partition that it is for."""

    partition: LeaderPartition
    header: BatchHeader


class _Offsets(NamedTuple):
    """The batch of a TxnOffsetCommit: the coordinator of the group numbers nothing."""

    producer_id: int
    producer_epoch: int
    base_sequence: int = NO_SEQUENCE


class Enlisting:
    """Enlists partitions that this broker leads. now_ms: the monotonic clock."""

    def __init__(self, verifier: Verifier, now_ms: Callable[[], int]) -> None:
        self._verifier = verifier
        self._now_ms = now_ms

    def is_needed(self, batch: ProducerBatch, client: Client) -> bool:
        """Whether `enlist` comes before the batch may be appended.

        False if its transaction is open there, if it was appended before, if its epoch is over, and
        for clients that are exempt.
        """
        log, header = batch.partition.log, batch.header
        if log.producers.states.is_open(header.producer_id, header.producer_epoch):
            return False
        seen = log.producers.check(header, log.segments)
        if isinstance(seen, SeenBatch) or seen is ErrorCode.INVALID_PRODUCER_EPOCH:
            return False
        return self._verifier.verifies(client)

    async def enlist(
        self, transactional_id: str, batches: Sequence[ProducerBatch], client: Client
    ) -> list[Guard | ErrorCode]:
        """Ask about the partitions of one producer's batches, by one question.

        For each the guard with which `refusal` decides, or why it is not in the transaction.
        """
        now_ms = self._now_ms()
        guards = [
            partition.guards.ask(header, adds=client.adds, now_ms=now_ms)
            for partition, header in batches
        ]
        errors: Sequence[ErrorCode] = ()
        try:
            names = [TopicPartition(each.partition.topic, each.partition.index) for each in batches]
            header = batches[0].header
            answered = await self._verifier.ask_patiently(
                transactional_id, (header.producer_id, header.producer_epoch), names, client
            )
            errors = [answered[name] for name in names]
        finally:
            for number, (guard, batch) in enumerate(zip(guards, batches, strict=True)):
                is_final = bool(errors and errors[number]) and errors[number] not in _SENT_AGAIN
                batch.partition.guards.answered(guard, is_final=is_final)
        return [error or guard for guard, error in zip(guards, errors, strict=True)]

    def refusal(
        self, batch: ProducerBatch, guard: Guard | None, client: Client
    ) -> ErrorCode | None:
        """Why a transactional batch is not appended; None if the log decides.

        guard: None if the coordinator was not asked. The batch must be appended in the same step of
        the loop.
        """
        if not self.is_needed(batch, client):
            return None
        partition, header = batch
        entry = partition.log.producers.states.get(header.producer_id)
        has_batches = entry is not None and bool(entry.batches)
        return partition.guards.refusal(guard, header, has_batches=has_batches)

    async def enlist_offsets(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partition: LeaderPartition,
        request_version: int,
    ) -> ErrorCode:
        """Enlist a partition of `__consumer_offsets` for a TxnOffsetCommit.

        producer: its id and epoch. NONE: the offsets may be appended in this very step of the loop;
        any other is the answer to the client. Source: CoordinatorPartitionWriter,
        GroupCoordinatorService.commitTransactionalOffsets.
        """
        client = Client.of_txn_offset_commit(request_version)
        batch = _Offsets(*producer)
        states, guards = partition.log.producers.states, partition.guards
        entry = states.get(batch.producer_id)
        if entry is not None and batch.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if states.is_open(*producer) or not self._verifier.verifies(client):
            return ErrorCode.NONE
        guard = guards.ask(batch, adds=client.adds, now_ms=self._now_ms())
        error = ErrorCode.NETWORK_EXCEPTION
        try:
            name = TopicPartition(partition.topic, partition.index)
            error = (await self._verifier.ask(transactional_id, producer, [name], client))[name]
        finally:
            guards.answered(guard, is_final=bool(error) and error not in _SENT_AGAIN)
        if not partition.is_current:
            return ErrorCode.NOT_COORDINATOR
        if not error and not states.is_open(*producer):
            error = guards.refusal(guard, batch, has_batches=True) or error
        if error is ErrorCode.NETWORK_EXCEPTION:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return error
