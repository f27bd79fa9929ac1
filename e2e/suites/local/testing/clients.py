"""Producers and consumers of three libraries behind one interface, as small as the recipes need.

A producer is idempotent and waits for all replicas. A consumer commits only when it is asked to,
and begins at the earliest record where its group has no offset.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from typing import Any, ClassVar, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AiokafkaError
from kafka.errors import KafkaError as KafkaPythonError

PATIENCE_S = 30.0
SESSION_MS = 30_000
BACKOFF_MS = 50
T = TypeVar("T")


class Producer(Protocol):
    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Begin to send; `flush` waits for it."""

    def flush(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until all is acknowledged; how many records are not, after this time."""

    def close(self) -> None: ...


class Consumer(Protocol):
    def take(self, count: int = 1) -> list[bytes]:
        """The next values, at least so many."""

    def poll(self) -> list[bytes]:
        """What comes within a moment; so the group's member takes part in rebalances."""

    def commit(self) -> None:
        """Commit what was taken. Raises the library's own error if the group refuses it."""

    def close(self) -> None: ...


class Client(Protocol):
    """refused: what `commit` raises."""

    refused: type[Exception]

    def producer(self, bootstrap: str) -> Producer: ...
    def consumer(
        self, bootstrap: str, topic: str, group: str, session_ms: int = SESSION_MS
    ) -> Consumer: ...


def taken(poll: Callable[[], list[bytes]], count: int) -> list[bytes]:
    """What `poll` returns until there is enough of it."""
    found: list[bytes] = []
    give_up_at = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < give_up_at, f"{len(found)} of {count} records came"
        found += poll()
    return found


class Closing:
    """Is closed once, by its test or after it."""

    _is_open = True

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._close()

    def _close(self) -> None:
        raise NotImplementedError


# --- confluent-kafka


class ConfluentProducer(Closing):
    def __init__(self, bootstrap: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "retry.backoff.ms": BACKOFF_MS,
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(settings)
        self._failed: list[object] = []

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def flush(self, timeout_s: float = PATIENCE_S) -> int:
        left: int = self._producer.flush(timeout_s)
        assert not self._failed, self._failed
        return left

    def _close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


class ConfluentConsumer(Closing):
    def __init__(self, bootstrap: str, topic: str, group: str, session_ms: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 200,
            "log_level": 0,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        found = self._consumer.consume(100, timeout=0.2)
        return [each.value() or b"" for each in found if each.error() is None]

    def take(self, count: int = 1) -> list[bytes]:
        return taken(self.poll, count)

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def _close(self) -> None:
        self._consumer.close()


class ConfluentClient:
    refused: type[Exception] = confluent_kafka.KafkaException

    def producer(self, bootstrap: str) -> Producer:
        return ConfluentProducer(bootstrap)

    def consumer(
        self, bootstrap: str, topic: str, group: str, session_ms: int = SESSION_MS
    ) -> Consumer:
        return ConfluentConsumer(bootstrap, topic, group, session_ms)


# --- kafka-python


class KafkaPythonProducer(Closing):
    def __init__(self, bootstrap: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            retry_backoff_ms=BACKOFF_MS,
            reconnect_backoff_ms=BACKOFF_MS,
        )
        self._sent: list[Any] = []

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._sent.append(self._producer.send(topic, value, partition=partition))

    def flush(self, timeout_s: float = PATIENCE_S) -> int:
        with contextlib.suppress(KafkaPythonError):  # its time is up
            self._producer.flush(timeout_s)
        done = [each for each in self._sent if each.is_done]
        self._sent = [each for each in self._sent if not each.is_done]
        for each in done:
            each.get(0)
        return len(self._sent)

    def _close(self) -> None:
        self._producer.close(1)


class KafkaPythonConsumer(Closing):
    def __init__(self, bootstrap: str, topic: str, group: str, session_ms: int) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=200,
            retry_backoff_ms=BACKOFF_MS,
        )

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(200)
        return [record.value for records in found.values() for record in records]

    def take(self, count: int = 1) -> list[bytes]:
        return taken(self.poll, count)

    def commit(self) -> None:
        self._consumer.commit()

    def _close(self) -> None:
        self._consumer.close(autocommit=False)


class KafkaPythonClient:
    refused: type[Exception] = KafkaPythonError

    def producer(self, bootstrap: str) -> Producer:
        return KafkaPythonProducer(bootstrap)

    def consumer(
        self, bootstrap: str, topic: str, group: str, session_ms: int = SESSION_MS
    ) -> Consumer:
        return KafkaPythonConsumer(bootstrap, topic, group, session_ms)


# --- aiokafka


class Loop:
    """A loop in a thread, on which the clients of a test live."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def begin(self, work: Awaitable[T]) -> "Future[T]":
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def run(self, work: Awaitable[T]) -> T:
        return self.begin(work).result(PATIENCE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaProducer(Closing):
    def __init__(self, bootstrap: str) -> None:
        self._loop = Loop()
        self._sent: list[Future[Any]] = []
        self._producer = self._loop.run(self._started(bootstrap))

    @staticmethod
    async def _started(bootstrap: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=BACKOFF_MS
        )
        await producer.start()
        return producer

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        work = self._producer.send_and_wait(topic, value, partition=partition)
        self._sent.append(self._loop.begin(work))

    def flush(self, timeout_s: float = PATIENCE_S) -> int:
        done, left = wait(self._sent, timeout_s)
        self._sent = list(left)
        for each in done:
            each.result()
        return len(left)

    def _close(self) -> None:
        for each in self._sent:
            each.cancel()
        self._loop.run(self._producer.stop())
        self._loop.close()


class AiokafkaConsumer(Closing):
    def __init__(self, bootstrap: str, topic: str, group: str, session_ms: int) -> None:
        self._loop = Loop()
        self._consumer = self._loop.run(self._started(bootstrap, topic, group, session_ms))

    @staticmethod
    async def _started(bootstrap: str, topic: str, group: str, session_ms: int) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=200,
            retry_backoff_ms=BACKOFF_MS,
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[bytes]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=200))
        return [record.value for records in found.values() for record in records]

    def take(self, count: int = 1) -> list[bytes]:
        return taken(self.poll, count)

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())

    def _close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


class AiokafkaClient:
    refused: type[Exception] = AiokafkaError

    def producer(self, bootstrap: str) -> Producer:
        return AiokafkaProducer(bootstrap)

    def consumer(
        self, bootstrap: str, topic: str, group: str, session_ms: int = SESSION_MS
    ) -> Consumer:
        return AiokafkaConsumer(bootstrap, topic, group, session_ms)


class Opened:
    """A client whose producers and consumers are closed at the end of the test."""

    of: ClassVar[dict[str, type[Client]]] = {
        "confluent-kafka": ConfluentClient,
        "aiokafka": AiokafkaClient,
        "kafka-python": KafkaPythonClient,
    }

    def __init__(self, name: str) -> None:
        self._client = self.of[name]()
        self._open: list[Producer | Consumer] = []

    @property
    def refused(self) -> type[Exception]:
        return self._client.refused

    def producer(self, bootstrap: str) -> Producer:
        made = self._client.producer(bootstrap)
        self._open.append(made)
        return made

    def consumer(
        self, bootstrap: str, topic: str, group: str, session_ms: int = SESSION_MS
    ) -> Consumer:
        made = self._client.consumer(bootstrap, topic, group, session_ms)
        self._open.append(made)
        return made

    def close(self) -> None:
        while self._open:
            self._open.pop().close()
