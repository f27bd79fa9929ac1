"""Asks the coordinator of a transaction about partitions that something is written to (KIP-890).

A partition's leader asks before it appends the first batch of a transaction; the coordinator of a
group before it appends offsets. Newer clients leave it to the broker to add the partition to the
transaction (TV2); for older ones it is verified that they have added it themselves. The version of
the client's request decides which.

A coordinator on this broker is called directly. To any other broker there is one connection, on
which nothing but these questions is sent: they must not wait behind fetches. One request is in
flight on it; all that is asked meanwhile goes with the next one.

Source: AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.config.broker import BrokerConfig
from logfleet.config.dynamic import layers_of
from logfleet.coordinators.partition import partition_for
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.node.transactions.additions import Added, Asked
from logfleet.node.world import Connect
from logfleet.store.loader import Subscription
from logfleet.types import NO_BROKER_EPOCH
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

log = structlog.get_logger(__name__)

STATE_TOPIC: Final = "__transaction_state"
FIRST_PAUSES: Final = 16
"""The first pause before a producer's partitions are added again is this part of the longest."""
VERIFICATION: Final = "transaction.partition.verification.enable"
_AskedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Errors = Mapping[TopicPartition, ErrorCode]


class Client(NamedTuple):
    """What the version of a client's request says of the client.

    adds: it leaves adding partitions to the broker (TV2). aborts: it knows TRANSACTION_ABORTABLE.
    """

    adds: bool
    aborts: bool

    @classmethod
    def of_produce(cls, version: int) -> "Client":
        """The client of a Produce request."""
        return cls(adds=version >= 12, aborts=version >= 11)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> "Client":
        """The client of a TxnOffsetCommit request."""
        return cls(adds=version >= 5, aborts=version >= 4)


class LocalCoordinators(Protocol):
    """The transaction coordinators of this broker."""

    async def add_partitions(self, asked: Asked, /) -> Added:
        """The answer to one transaction of AddPartitionsToTxn version 5.

        NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS for each partition if that is so.
        """


class Verifier:
    """Asks the coordinators of transactions, on this broker and on others.

    image: the newest. spawn: starts a task that ends with the broker. connect: opens a connection.
    """

    def __init__(
        self,
        config: BrokerConfig,
        coordinators: LocalCoordinators,
        *,
        image: Callable[[], ClusterImage],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        connect: Connect,
    ) -> None:
        self._config = config
        self._coordinators = coordinators
        self._image = image
        self._spawn = spawn
        self._connect = connect
        self._links: dict[int, _Link] = {}

    async def run(self, subscription: Subscription) -> None:
        """Wait for no answer of a broker that is gone, until cancelled; then close."""
        try:
            while True:
                _, changes = await subscription.next()
                if changes.everything or changes.brokers:
                    for link in self._links.values():
                        link.check_address()
        finally:
            self.close()

    def close(self) -> None:
        """End all connections; what was asked gets NETWORK_EXCEPTION."""
        for link in self._links.values():
            link.close()

    def verifies(self, client: Client) -> bool:
        """Whether partitions of such clients are asked about.

        Older ones are exempt while transaction.partition.verification.enable is false.
        """
        if client.adds:
            return True
        layers = layers_of(self._config.static, self._image(), self._config.node_id)
        return layers.effective_value(VERIFICATION) != "false"

    async def ask_patiently(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        client: Client,
    ) -> Errors:
        """Do as `ask`, and ask again while the producer's last transaction is being completed.

        A TV2 producer begins its next transaction before that: CONCURRENT_TRANSACTIONS then is
        worth a short wait, and sending its records again costs more (KAFKA-18575). Completion is a
        matter of one or two milliseconds, so the first pauses are shorter than the configured one,
        which would halve the rate of short transactions (KAFKA-18654).
        """
        time_s = asyncio.get_running_loop().time
        config = self._config
        wait_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
        give_up_s = time_s() + wait_ms / 1000
        pause_s_max = config.add_partitions_to_txn_retry_backoff_ms / 1000
        pause_s = pause_s_max / FIRST_PAUSES
        while True:
            errors = await self.ask(transactional_id, producer, partitions, client)
            is_busy = client.adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not is_busy or time_s() >= give_up_s:
                return errors
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, pause_s_max)

    async def ask(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        client: Client,
    ) -> Errors:
        """Verify that the transaction has these partitions, or add them; an error for each.

        producer: its id and epoch. What a client does not expect is replaced: PRODUCER_FENCED by
        INVALID_PRODUCER_EPOCH, and TRANSACTION_ABORTABLE by INVALID_TXN_STATE for older ones.
        """
        added = await self._answer(_asked(transactional_id, producer, partitions, client))
        if isinstance(added, ErrorCode):
            return dict.fromkeys(partitions, _known_to(client, added))
        errors = {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in added.topic_results
            for row in topic.results_by_partition
        }
        missing = ErrorCode.NETWORK_EXCEPTION
        return {each: _known_to(client, errors.get(each, missing)) for each in partitions}

    async def _answer(self, asked: Asked) -> "Added | ErrorCode":
        broker_id = self._coordinator_of(asked.transactional_id)
        if broker_id is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if broker_id == self._config.node_id:
            return await self._coordinators.add_partitions(asked)
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = _Link(self, broker_id)
        return await link.ask(asked)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """The broker that coordinates the transactions of this id, None while there is none."""
        topic = self._image().topic(STATE_TOPIC)
        if topic is None or not topic.partitions:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return leader if leader in self._image().brokers else None

    # What links need

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._spawn(work)

    @property
    def request_timeout_ms(self) -> int:
        return self._config.request_timeout_ms

    def broker(self, broker_id: int) -> Broker | None:
        """The broker as it is registered in the newest image."""
        return self._image().brokers.get(broker_id)

    async def connect(self, broker: Broker) -> Connection | None:
        """A connection; None if the broker has no listener for others. Raises ClientError."""
        address = broker.listener(self._config.inter_broker_listener_name)
        if address is None:
            return None
        name = f"broker-{self._config.node_id}-transactions"
        return await self._connect(address.host, address.port, name)


class _Question:
    """A question that waits for its answer. answer: an ErrorCode if the coordinator gave none."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.answer: asyncio.Future[Added | ErrorCode] = asyncio.get_running_loop().create_future()

    def end(self, answer: Added | ErrorCode) -> None:
        if not self.answer.done():  # else the asking task was cancelled
            self.answer.set_result(answer)


class _Link:
    """The questions to one other broker, and the connection to it."""

    def __init__(self, verifier: Verifier, broker_id: int) -> None:
        self._verifier = verifier
        self._broker_id = broker_id
        self._waiting: list[_Question] = []
        self._connection: Connection | None = None
        self._epoch = NO_BROKER_EPOCH
        self._is_asking = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def check_address(self) -> None:
        """End the connection if the broker has registered again since, or is gone.

        One that was cut off or has lost power does not end it itself, and its successor may have
        the same name.
        """
        broker = self._verifier.broker(self._broker_id)
        if broker is None or broker.epoch != self._epoch:
            self.close()

    async def ask(self, asked: Asked) -> Added | ErrorCode:
        question = _Question(asked)
        self._waiting.append(question)
        if not self._is_asking:
            self._is_asking = True
            self._verifier.spawn(self._ask_all())
        return await question.answer

    async def _ask_all(self) -> None:
        """Ask until nothing waits."""
        try:
            while self._waiting:
                await self._exchange(self._take())
        finally:
            self._is_asking = False
            for question in self._waiting:  # the broker stops
                question.end(ErrorCode.NETWORK_EXCEPTION)

    def _take(self) -> dict[str, _Question]:
        """What goes with one request: of each transaction the first that waits.

        The rows of an answer are found by their transactional id.
        """
        taken: dict[str, _Question] = {}
        left: list[_Question] = []
        for question in self._waiting:
            transactional_id = question.asked.transactional_id
            if taken.setdefault(transactional_id, question) is not question:
                left.append(question)
        self._waiting = left
        return taken

    async def _exchange(self, asked: Mapping[str, _Question]) -> None:
        additions = [question.asked for question in asked.values()]
        otherwise = ErrorCode.NETWORK_EXCEPTION
        try:
            connection = await self._connected()
            if connection is not None:
                answer = await connection.request(
                    AddPartitionsToTxnRequest(transactions=additions),
                    AddPartitionsToTxnResponse,
                    timeout_ms=self._verifier.request_timeout_ms,
                )
                otherwise = ErrorCode(answer.error_code) or otherwise
                for added in answer.results_by_transaction:
                    if added.transactional_id in asked:
                        asked[added.transactional_id].end(added)
        except ClientError as error:
            # whatever it is: the next question gets a new connection, with versions of then
            self.close()
            log.warning("coordinator_not_reached", broker=self._broker_id, reason=str(error))
        finally:
            for question in asked.values():
                question.end(otherwise)  # unless it has its answer

    async def _connected(self) -> Connection | None:
        """The connection; None if the broker is not registered. Raises ClientError."""
        self.check_address()
        connection = self._connection
        if connection is not None and connection.lost is None:
            return connection
        self._connection = None
        broker = self._verifier.broker(self._broker_id)
        if broker is not None:
            self._epoch = broker.epoch
            self._connection = await self._verifier.connect(broker)
            self.check_address()
        return self._connection


def _asked(
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[TopicPartition],
    client: Client,
) -> Asked:
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return Asked(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=not client.adds,
        topics=[_AskedTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def _known_to(client: Client, error: ErrorCode) -> ErrorCode:
    """The error by which this client does what is right; see `Verifier.ask`."""
    match error:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.TRANSACTION_ABORTABLE if not client.aborts:
            return ErrorCode.INVALID_TXN_STATE
        case _:
            return error
