"""Writes records and a group's offsets in transactions: all of one are visible, or none (KIP-98).

Which protocol a transaction uses is decided when it begins, by the transaction.version that the
cluster has finalized: from level 2 on KIP-890's second version, with a new epoch per transaction.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, NoReturn, Self, TypedDict, Unpack

from logfleet.client.batches import Delivery
from logfleet.client.cluster import Client
from logfleet.client.errors import AbortRequired, ClientError, OutcomeUnknown
from logfleet.client.offsets import TopicPartition
from logfleet.client.producer import Producer
from logfleet.client.transactions.calls import Member, TransactionCalls
from logfleet.client.transactions.state import (
    NO_IDENTITY,
    Identity,
    Phase,
    TransactionState,
    Verdict,
    verdict_of_call,
    verdict_of_record,
)
from logfleet.client.transactions.version import TRANSACTION_VERSION
from logfleet.records.compression import Codec
from logfleet.records.record import Header
from logfleet.wire.apis import API_BY_NAME

PRODUCE_VERSION_MAX_V1: Final = 11  # later ones add the partition to the transaction
NO_MEMBER: Final = Member()
EXIT_SECONDS: Final = 5.0


class RecordOptions(TypedDict, total=False):
    """The parameters of `Producer` that a transactional one may have, too."""

    codec: Codec
    level: int | None
    linger_ms: float
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    auto_create: bool


class TransactionalProducer:
    """Use as `async with`; leaving it aborts a transaction that is open.

    Call `init` first, then for each transaction `begin`, any number of `send` and `add_offsets`,
    and `commit` or `abort`. One call at a time, except `send`. After AbortRequired only `abort`
    helps, after ProducerFailed only another producer.

    timeout_ms: the coordinator aborts a transaction that takes longer (Kafka:
    transaction.timeout.ms). options: as for `Producer`, and by default as there.
    """

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        **options: Unpack[RecordOptions],
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self._state = TransactionState()
        self._calls = TransactionCalls(client, transactional_id, timeout_ms)
        self._identities = _Identities(client, transactional_id, self._calls, self._state)
        self._producer = Producer(client, identities=self._identities, **options)

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._state.phase in {Phase.OPEN, Phase.ABORT_DUE}:
                # else the coordinator aborts it after timeout_ms
                with contextlib.suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(EXIT_SECONDS):
                        await self.abort()
        finally:
            await self._producer.__aexit__(kind, error, trace)

    async def init(self) -> None:
        """Become the only producer of the transactional id: transactions of older ones have ended.

        Raises KafkaError, ConnectionLost; it may be called again.
        """
        await self._init(NO_IDENTITY)

    @property
    def records(self) -> Producer:
        """The producer of the records: its `put` adds a batch to the open transaction.

        If a batch fails, the transaction can only be aborted.
        """
        return self._producer

    async def partition_count(self, topic: str) -> int:
        """The cached number of partitions. Raises KafkaError if there is no such topic."""
        return await self._producer.partition_count(topic)

    async def begin(self) -> None:
        """Open a transaction. Raises ProducerFailed, or ClientError: it may be called again."""
        v2 = self._is_v2()
        if self._state.needs_epoch(v2=v2):
            try:
                await self._init(self._state.identity)
            except ClientError as error:
                if verdict_of_call(error) is not Verdict.FAIL:
                    raise
                self._state.failed(error, Verdict.FAIL)
        self._state.begun(v2=v2)
        self._identities.begun()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """As `Producer.send`, in the open transaction.

        If this fails or the record does, the transaction can only be aborted. Raises AbortRequired,
        ProducerFailed, and what `Producer.send` raises.
        """
        self._state.check_open()
        try:
            return await self._producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        except ClientError as error:
            self._state.failed(error, verdict_of_record(error))
            raise

    async def add_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        member: Member = NO_MEMBER,
        *,
        metadata: str = "",
    ) -> None:
        """Commit offsets of a group together with the transaction (KIP-447).

        member: who read what the transaction is made of; the group refuses one that it has dropped.
        After an abort, let that consumer `seek` to the committed offsets before it polls again: it
        commits its positions itself before a rebalance. metadata: kept with each offset. Raises
        AbortRequired, ProducerFailed.
        """
        state = self._state
        state.check_open()

        async def add() -> None:
            await self._calls.add_group(state.identity, group)

        async def stage() -> None:
            await self._calls.stage_offsets(
                state.identity, group, offsets, member, metadata=metadata, v2=state.v2
            )

        if not state.v2:
            await self._identities.add(add)
        state.is_begun = True
        try:
            await self.client.retrying(stage)
        except ClientError as error:
            self._identities.call_failed(error)

    async def commit(self) -> None:
        """Write all records, then commit them and the offsets.

        A transaction without any costs no request. Raises AbortRequired if something of it failed,
        ProducerFailed, OutcomeUnknown if it may be committed or not. After that and after any other
        ClientError it may be called again, and repeats its request.
        """
        self._state.check_end(commit=True)
        if self._state.phase is Phase.OPEN:
            with contextlib.suppress(ClientError):
                await self._producer.flush()
        await self._end(commit=True)

    async def abort(self) -> None:
        """Drop all records and offsets of the transaction; records on their way are waited for.

        Raises ProducerFailed, OutcomeUnknown after a commit that nobody answered. After another
        ClientError it may be called again.
        """
        self._state.check_end(commit=False)
        if self._state.phase in {Phase.OPEN, Phase.ABORT_DUE}:
            await self._producer.discard(AbortRequired("the transaction is aborted"))
        await self._end(commit=False)

    async def _end(self, *, commit: bool) -> None:
        state = self._state
        state.ending(commit=commit)
        if not state.is_begun:
            state.ended(None)
            return

        async def end() -> Identity | None:
            connection = await self._calls.coordinator()
            state.end_sent()
            try:
                return await self._calls.end(connection, state.identity, commit=commit, v2=state.v2)
            except ClientError as error:
                state.end_answered(error)
                raise

        try:
            identity = await self.client.retrying(end)
        except ClientError as error:
            if not error.retriable:
                state.end_refused(error)
            if state.is_unknown:
                raise OutcomeUnknown(f"the commit was sent, and not answered: {error}") from error
            raise
        state.ended(identity)

    async def _init(self, identity: Identity) -> None:
        found = await self.client.retrying(lambda: self._calls.init(identity))
        self._state.initialised(found, v2=self._is_v2())

    def _is_v2(self) -> bool:
        return self.client.finalized.level(TRANSACTION_VERSION) >= 2


class _Identities:
    """The identity of the open transaction, to which it adds the partitions that are written to."""

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        calls: TransactionCalls,
        state: TransactionState,
    ) -> None:
        self.transactional_id: str | None = transactional_id
        self._client, self._calls, self._state = client, calls, state
        self._wanted: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()

    @property
    def produce_version_max(self) -> int:
        return API_BY_NAME["Produce"].max_version if self._state.v2 else PRODUCE_VERSION_MAX_V1

    def begun(self) -> None:
        """A transaction without partitions has begun."""
        self._wanted.clear()
        self._added.clear()

    async def current(self, partitions: Collection[TopicPartition]) -> Identity:
        """The identity, once the partitions are part of the transaction, or are by being written.

        Raises AbortRequired, ProducerFailed.
        """
        self._state.check_open()
        if self._state.v2:
            self._state.is_begun = True
        else:
            await self._add_partitions(partitions)
        return self._state.identity

    def gave_up(self, error: ClientError, *, was_stamped: bool) -> None:
        """Without these records, the transaction cannot be committed."""
        self._state.bump_due |= was_stamped
        self._state.failed(error, verdict_of_record(error))

    async def add(self, call: Callable[[], Awaitable[None]]) -> None:
        """Retry a request that adds something. Raises AbortRequired, ProducerFailed."""
        try:
            await self._client.retrying(call)
        except ClientError as error:
            self._state.bump_due |= error.retriable  # it may have been added or not
            self.call_failed(error)
        self._state.is_begun = True

    def call_failed(self, error: ClientError) -> NoReturn:
        """Give up the transaction after a call. Raises AbortRequired, ProducerFailed."""
        is_fatal = verdict_of_call(error) is Verdict.FAIL
        self._state.failed(error, Verdict.FAIL if is_fatal else Verdict.ABORT)
        self._state.check_open()
        raise error

    async def _add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add in one request all that have been waiting for an earlier one."""
        self._wanted.update(partitions)
        async with self._adding:
            missing = self._wanted - self._added
            if missing:
                await self.add(lambda: self._calls.add_partitions(self._state.identity, missing))
                self._added |= missing
