"""Kafka clients under test behind one interface; each writes and reads records in its own way.

`write` returns when all records are acknowledged (acks=all). `read` reads a topic's partitions from
the beginning until it has `count` records. Compression is done by the client library.
"""

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from e2e.harness.debian import install

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60.0
NULL = "NULL"
JAVA_PATIENCE_S = 120.0


@dataclass(frozen=True, order=True)
class Sent:
    """A record that was sent, and that must be read back unchanged. timestamp in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())


class Client(Protocol):
    """Writes and reads records.

    has_headers, has_nulls: whether it supports headers and null values.
    """

    has_headers: bool
    has_nulls: bool

    def write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None: ...
    def read(self, bootstrap: str, topic: str, count: int) -> list[Sent]: ...


class ConfluentClient:
    """confluent-kafka: librdkafka, idempotent."""

    has_headers = True
    has_nulls = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None:
        from confluent_kafka import Producer

        config = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
        }
        producer = Producer(config)
        errors: list[object] = []
        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0, "not everything was acknowledged in time"
        assert errors == []

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        try:
            known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in known])
            read: list[Sent] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(read) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(read), timeout=1):
                    assert message.error() is None, message.error()
                    given: Any = message.headers() or ()
                    headers = tuple((name, value) for name, value in given)
                    timestamp = message.timestamp()[1]
                    read.append(Sent(message.key(), message.value(), timestamp, headers))
            return read
        finally:
            consumer.close()


class KafkaPythonClient:
    """kafka-python: pure Python, guesses the broker's version from ApiVersions."""

    has_headers = True
    has_nulls = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None:
        from kafka import KafkaProducer

        compression = None if codec == "none" else codec
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", compression_type=compression, linger_ms=5
        )
        try:
            futures = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            for future in futures:
                future.get(timeout=PATIENCE_S)
        finally:
            producer.close()

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        try:
            partitions = [
                TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)
            ]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            read: list[Sent] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(read) < count and time.monotonic() < deadline:
                for messages in consumer.poll(timeout_ms=1000).values():
                    read += [
                        Sent(each.key, each.value, each.timestamp, tuple(each.headers))
                        for each in messages
                    ]
            return read
        finally:
            consumer.close()


class AiokafkaClient:
    """aiokafka, which uses old, inflexible versions of the requests."""

    has_headers = True
    has_nulls = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None:
        asyncio.run(self._write(bootstrap, topic, records, codec))

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        return asyncio.run(self._read(bootstrap, topic, count))

    async def _write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*futures)
        finally:
            await producer.stop()

    async def _read(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            read: list[Sent] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(read) < count:
                    for messages in (await consumer.getmany(timeout_ms=1000)).values():
                        read += [
                            Sent(each.key, each.value, each.timestamp, tuple(each.headers))
                            for each in messages
                        ]
            return read
        finally:
            await consumer.stop()


class KcatClient:
    """kcat from Debian, with librdkafka 2.0. All records of a call have the same headers.

    It sets timestamps.
    """

    has_headers = False
    has_nulls = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None:
        lines = b"".join(
            (record.key or b"") + b"\t" + (record.value or b"") + b"\n" for record in records
        )
        command = [kcat(), "-b", bootstrap, "-t", topic, "-P", "-K", "\t", "-Z", "-z", codec]
        run(command, lines)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        del count  # kcat stops at the end of the partitions
        command = [kcat(), "-b", bootstrap, "-t", topic, "-C", "-J", "-e", "-q", "-o", "beginning"]
        read = []
        for line in run(command).splitlines():
            row = json.loads(line)
            pairs = row.get("headers") or []
            headers = tuple(
                (name, value.encode()) for name, value in zip(pairs[::2], pairs[1::2], strict=True)
            )
            read.append(Sent(_bytes(row["key"]), _bytes(row["payload"]), row["ts"], headers))
        return read


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class JavaClient:
    """Apache Kafka's console tools 4.3. The producer sets the timestamps."""

    has_headers = True
    has_nulls = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str) -> None:
        from e2e.harness.kafka import run_tool

        arguments = ["--bootstrap-server", bootstrap, "--topic", topic]
        arguments += ["--compression-codec", codec]
        form = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL}
        arguments += _properties("--reader-property", form)
        run_tool(
            "org.apache.kafka.tools.ConsoleProducer",
            arguments,
            stdin="".join(map(_to_console, records)),
            timeout_seconds=JAVA_PATIENCE_S,
        )

    def read(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from e2e.harness.kafka import run_tool

        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
        arguments += ["--max-messages", str(count), "--timeout-ms", str(int(PATIENCE_S * 1000))]
        shown = {f"print.{what}": "true" for what in ("key", "headers", "timestamp")}
        arguments += _properties("--formatter-property", shown)
        said = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            arguments,
            timeout_seconds=JAVA_PATIENCE_S,
        )
        return [_from_console(line) for line in said.splitlines()]


def _properties(flag: str, values: Mapping[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in (flag, f"{name}={value}")]


def _to_console(record: Sent) -> str:
    """Format a record as a line such as `a:b,c:d<tab>key<tab>value`."""
    headers = ",".join(f"{name}:{(value or b'').decode()}" for name, value in record.headers)
    key, value = (NULL if part is None else part.decode() for part in (record.key, record.value))
    return f"{headers or NULL}\t{key}\t{value}\n"


def _from_console(line: str) -> Sent:
    """Parse a line such as `CreateTime:17000<tab>a:b,c:d<tab>key<tab>value`."""
    time_text, header_text, key, value = line.split("\t")
    headers: tuple[tuple[str, bytes], ...] = ()
    if header_text != "NO_HEADERS":
        pairs = (pair.partition(":") for pair in header_text.split(","))
        headers = tuple((name, text.encode()) for name, _, text in pairs)
    return Sent(
        None if key == "null" else key.encode(),
        None if value == "null" else value.encode(),
        int(time_text.partition(":")[2]),
        headers,
    )


CLIENTS: dict[str, Client] = {
    "confluent-kafka": ConfluentClient(),
    "kafka-python": KafkaPythonClient(),
    "aiokafka": AiokafkaClient(),
    "kcat": KcatClient(),
}


@cache
def kcat() -> str:
    """Return the path of kcat; install Debian's package if it is missing and this user is root."""
    if shutil.which("kcat") is None:
        install("kcat")
    found = shutil.which("kcat")
    assert found is not None
    return found


def run(command: Sequence[str], stdin: bytes = b"") -> str:
    """Run a program and return its standard output.

    Raises AssertionError with its output if it fails.
    """
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=said,
            timeout=PATIENCE_S,
            check=False,
        )
        said.seek(0)
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {said.read()!r}"
    return done.stdout.decode()


def free_of_time(records: Sequence[Sent]) -> list[tuple[Any, ...]]:
    """Return the records without timestamps, for clients that set their own."""
    return [(record.key, record.value, record.headers) for record in records]


def by_key(records: Sequence[Sent]) -> dict[bytes | None, list[Sent]]:
    """Group the records by key, as order is guaranteed only within a partition, so within a key."""
    found: dict[bytes | None, list[Sent]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    return found
