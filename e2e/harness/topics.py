"""Topics of a broker, as librdkafka creates, deletes and describes them."""

import time
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PATIENCE_S = 60.0
NO_CONFIG: Mapping[str, str] = MappingProxyType({})


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    config: Mapping[str, str] = NO_CONFIG,
    replicas: int = 1,
) -> None:
    """Create a topic. Raises KafkaException with the broker's message if it refuses."""
    new = NewTopic(topic, partitions, replicas, config=dict(config))
    # librdkafka cancels the requests when the last reference to the client is dropped
    admin = _admin(bootstrap)
    admin.create_topics([new])[topic].result(timeout=PATIENCE_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic. Raises KafkaException with the broker's message if it refuses."""
    admin = _admin(bootstrap)
    admin.delete_topics([topic])[topic].result(timeout=PATIENCE_S)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


def write(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None, int]],
    within_s: float = PATIENCE_S,
    **config: Any,
) -> None:
    """Write (key, value, partition) of each record; all are acknowledged when this returns.

    within_s: of the last of them. config: of the producer, with `_` for `.`.
    """
    named = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **named})
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for key, value, partition in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered)
                break
            except BufferError:  # its queue is full: let it deliver
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(within_s)
    assert (left, failed) == (0, []), f"{left} records were not acknowledged: {failed[:3]}"


class Read(NamedTuple):
    partition: int
    offset: int
    value: bytes


def read(
    bootstrap: str, topic: str, within_s: float = 4 * PATIENCE_S, *, despite_errors: bool = False
) -> Iterator[Read]:
    """Return the records of each partition, from its beginning to the end that it has now.

    despite_errors: brokers may be away meanwhile.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        ends = {n: end for n, (start, end) in enumerate(_ends(consumer, topic)) if start < end}
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in ends])
        give_up_s = time.monotonic() + within_s
        while ends:
            assert time.monotonic() < give_up_s, f"{topic} was not read up to {ends}"
            for message in consumer.consume(10_000, 0.5):
                if despite_errors and message.error() is not None:
                    continue
                assert message.error() is None, message.error()
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert value is not None
                yield Read(partition, offset, value)
                if offset + 1 >= ends.get(partition, 0):
                    ends.pop(partition, None)
    finally:
        consumer.close()


def ends(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[tuple[int, int]]:
    """Return the log start offset and the high watermark of each partition.

    isolation: read_committed gives the last stable offset for the high watermark.
    """
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": isolation}
    consumer = Consumer(config)
    try:
        return _ends(consumer, topic)
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> list[tuple[int, int]]:
    known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    assert known.error is None, known.error
    return [
        consumer.get_watermark_offsets(TopicPartition(topic, index), PATIENCE_S)
        for index in sorted(known.partitions)
    ]


def held(bootstrap: str, topic: str) -> int:
    """Return the number of offsets between log start and high watermark, of all partitions."""
    return sum(high - low for low, high in ends(bootstrap, topic))


def are_whole(admin: AdminClient, timeout_s: float, replicas: int | None = None) -> bool:
    """Return whether all partitions have a leader, and all their replicas are in sync.

    replicas: how many each has to have.
    """
    return all(
        len(state.isrs) == len(state.replicas)
        and state.leader in state.isrs
        and replicas in {None, len(state.replicas)}
        for topic in admin.list_topics(timeout=timeout_s).topics.values()
        for state in topic.partitions.values()
    )
