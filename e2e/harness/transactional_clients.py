"""Transactional producers, and consumers beside them, of the clients under test, behind one interface.

A producer has its transactional id initialized when it is made. `send` and `add_offsets` return when
the broker has acknowledged. What a broker refuses is raised as the client's own exception.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka

PATIENCE_S = 60.0
T = TypeVar("T")


class TransactionalProducer(Protocol):
    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, partition: int) -> None: ...

    def add_offsets(self, offsets: Mapping[tuple[str, int], int], member: Any) -> None:
        """member: of a `GroupReader` of the same client."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class GroupReader(Protocol):
    """Reads a topic as the only member of a group, from the group's offsets or else the beginning."""

    def values(self, last: bytes, partitions: int) -> list[bytes]:
        """Read until the value `last` has come from so many partitions; return the others."""

    def member(self) -> Any:
        """What the client's producer needs to know of it, to commit offsets for its group."""

    def committed(self, topic: str, partition: int) -> int | None:
        """The offset that its group has committed."""

    def close(self) -> None:
        """It leaves the group."""


class TransactionalClient(Protocol):
    """error: what its calls raise. fenced, too_long, stale: parts of such an error's text.

    They stand for a producer that another one with its id replaced, a transaction timeout beyond the
    broker's limit, and a member that has left its group. stale: None for a client that names only
    the group, as before KIP-447.
    """

    error: type[Exception]
    fenced: str
    too_long: str
    stale: str | None

    def producer(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer: ...

    def reader(
        self, bootstrap: str, topic: str, group: str, isolation: str = "read_committed"
    ) -> GroupReader: ...


class Enough:
    """Collects values until the last one of each partition has come."""

    def __init__(self, last: bytes, partitions: int) -> None:
        self.found: list[bytes] = []
        self._last, self._left = last, partitions
        self._give_up_at = time.monotonic() + PATIENCE_S

    def take(self, value: bytes | None) -> None:
        if value == self._last:
            self._left -= 1
        elif value is not None:
            self.found.append(value)

    def goes_on(self) -> bool:
        assert time.monotonic() < self._give_up_at, f"{self._left} ends are missing: {self.found}"
        return self._left > 0


class Confluent:
    """confluent-kafka: librdkafka, which speaks the first version of the protocol."""

    error: type[Exception] = confluent_kafka.KafkaException
    fenced = "_FENCED"
    too_long = "INVALID_TRANSACTION_TIMEOUT"
    stale: str | None = "UNKNOWN_MEMBER_ID"

    def producer(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return ConfluentProducer(bootstrap, transactional_id, timeout_ms)

    def reader(
        self, bootstrap: str, topic: str, group: str, isolation: str = "read_committed"
    ) -> GroupReader:
        return ConfluentReader(bootstrap, topic, group, isolation)


class ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(config)
        self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0

    def add_offsets(self, offsets: Mapping[tuple[str, int], int], member: Any) -> None:
        given = [
            confluent_kafka.TopicPartition(*where, offset) for where, offset in offsets.items()
        ]
        self._producer.send_offsets_to_transaction(given, member, PATIENCE_S)

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        del self._producer  # which ends its threads


class ConfluentReader:
    def __init__(self, bootstrap: str, topic: str, group: str, isolation: str) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._consumer = confluent_kafka.Consumer(config)
        self._consumer.subscribe([topic])

    def values(self, last: bytes, partitions: int) -> list[bytes]:
        enough = Enough(last, partitions)
        while enough.goes_on():
            for message in self._consumer.consume(100, 0.2):
                assert message.error() is None, message.error()
                enough.take(message.value())
        return enough.found

    def member(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def committed(self, topic: str, partition: int) -> int | None:
        asked = [confluent_kafka.TopicPartition(topic, partition)]
        (found,) = self._consumer.committed(asked, PATIENCE_S)
        return None if found.offset < 0 else found.offset

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """kafka-python, whose members are known to the producer since 3.0."""

    error: type[Exception] = kafka.errors.KafkaError
    fenced = "ProducerFencedError"
    too_long = "InvalidTransactionTimeout"
    stale: str | None = "CommitFailed"

    def producer(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return KafkaPythonProducer(bootstrap, transactional_id, timeout_ms)

    def reader(
        self, bootstrap: str, topic: str, group: str, isolation: str = "read_committed"
    ) -> GroupReader:
        return KafkaPythonReader(bootstrap, topic, group, isolation)


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        try:
            self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._producer.send(topic, value, partition=partition).get(PATIENCE_S)

    def add_offsets(self, offsets: Mapping[tuple[str, int], int], member: Any) -> None:
        given = {
            kafka.TopicPartition(*where): kafka.OffsetAndMetadata(offset, "", -1)
            for where, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(given, member)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=PATIENCE_S)


class KafkaPythonReader:
    def __init__(self, bootstrap: str, topic: str, group: str, isolation: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        # a leader that joins before it knows the topic assigns none of its partitions
        self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe([topic])

    def values(self, last: bytes, partitions: int) -> list[bytes]:
        enough = Enough(last, partitions)
        while enough.goes_on():
            for messages in self._consumer.poll(timeout_ms=200).values():
                for message in messages:
                    enough.take(message.value)
        return enough.found

    def member(self) -> Any:
        return self._consumer.group_metadata()

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self._consumer.committed(kafka.TopicPartition(topic, partition))
        return found

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    """aiokafka, which names the group only, in the oldest versions of the requests."""

    error: type[Exception] = aiokafka.errors.KafkaError
    fenced = "newer producer"
    too_long = "InvalidTransactionTimeout"
    stale: str | None = None

    def producer(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalProducer:
        return AiokafkaProducer(bootstrap, transactional_id, timeout_ms)

    def reader(
        self, bootstrap: str, topic: str, group: str, isolation: str = "read_committed"
    ) -> GroupReader:
        return AiokafkaReader(bootstrap, topic, group, isolation)


class Loop:
    """An event loop of its own, which runs during calls only."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        return self._runner.run(bounded())

    def close(self) -> None:
        self._runner.close()


class AiokafkaProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = Loop()
        self._producer = self._loop.run(self._made(bootstrap, transactional_id, timeout_ms))
        try:
            self._loop.run(self._producer.start())
        except BaseException:
            self.close()
            raise

    @staticmethod
    async def _made(
        bootstrap: str, transactional_id: str, timeout_ms: int
    ) -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._loop.run(self._producer.send_and_wait(topic, value, partition=partition))

    def add_offsets(self, offsets: Mapping[tuple[str, int], int], member: Any) -> None:
        given = {aiokafka.TopicPartition(*where): offset for where, offset in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(given, member))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.close()


class AiokafkaReader:
    def __init__(self, bootstrap: str, topic: str, group: str, isolation: str) -> None:
        self._loop, self._group = Loop(), group
        self._consumer = self._loop.run(self._made(bootstrap, topic, group, isolation))
        self._loop.run(self._consumer.start())

    @staticmethod
    async def _made(
        bootstrap: str, topic: str, group: str, isolation: str
    ) -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def values(self, last: bytes, partitions: int) -> list[bytes]:
        enough = Enough(last, partitions)
        while enough.goes_on():
            read = self._loop.run(self._consumer.getmany(timeout_ms=200))
            for messages in read.values():
                for message in messages:
                    enough.take(message.value)
        return enough.found

    def member(self) -> Any:
        return self._group

    def committed(self, topic: str, partition: int) -> int | None:
        asked = aiokafka.TopicPartition(topic, partition)
        found: int | None = self._loop.run(self._consumer.committed(asked))
        return found

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


TRANSACTIONAL_CLIENTS: Mapping[str, TransactionalClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
}
