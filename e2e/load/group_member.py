"""One member of a consumer group, as a process that can be killed: it reads, tells what it read, and commits.

usage: python -m e2e.load.group_member SETTINGS      (JSON, the fields of Settings)

Each client library is used in the way it is meant to be for commits in order: what was read is committed before a partition
is given back. On standard output stands one JSON object a line:

    {"owns": [0, 2]}        after each change of its assignment
    {"read": [2, 17]}       partition and value of a record
    {"committed": 5}        all records told of so far are committed

SIGTERM makes it leave in order. SIGUSR1 writes where all its threads stand to standard error.
"""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

POLL_S: Final = 0.05
JOIN_S: Final = 10.0
"""Longest poll for a client whose joins had better not be spread over several."""
FATAL: Final = -150
"""librdkafka's RD_KAFKA_RESP_ERR__FATAL: the instance is of no use any more, as when another took its group.instance.id."""


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """assignor: as the protocol names it (range, roundrobin, cooperative-sticky). instance: group.instance.id."""

    client: str
    bootstrap: str
    topic: str
    group: str
    assignor: str = "range"
    instance: str | None = None
    session_ms: int = 30_000
    heartbeat_ms: int = 300


class Telling:
    """What the member tells, whether it shall leave, and whether it has what it was last assigned."""

    def __init__(self) -> None:
        self.leaving = False
        self.has_assignment = False
        self._owned: set[int] = set()
        self._told = self._committed = 0
        signal.signal(signal.SIGTERM, self._leave)

    def _leave(self, *_: object) -> None:
        self.leaving = True

    def assigned(self, partitions: Iterable[int]) -> None:
        self.has_assignment = True
        self._owned.update(partitions)
        _tell({"owns": sorted(self._owned)})

    def revoked(self, partitions: Iterable[int]) -> None:
        self.has_assignment = False
        self._owned.difference_update(partitions)
        _tell({"owns": sorted(self._owned)})

    def read(self, partition: int, value: bytes) -> None:
        self._told += 1
        _tell({"read": [partition, int(value)]})

    @property
    def is_behind(self) -> bool:
        """Whether something was read and not committed."""
        return self._committed < self._told

    def committed(self) -> None:
        self._committed = self._told
        _tell({"committed": self._committed})


def _tell(event: dict[str, object]) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(event) + b"\n")


def confluent(settings: Settings, telling: Telling) -> None:
    from confluent_kafka import Consumer, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "group.id": settings.group,
        "partition.assignment.strategy": settings.assignor,
        "session.timeout.ms": settings.session_ms,
        "heartbeat.interval.ms": settings.heartbeat_ms,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
    }
    if settings.instance is not None:
        config["group.instance.id"] = settings.instance

    consumer = Consumer(config)

    def commit() -> None:
        if telling.is_behind:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print(error, file=sys.stderr, flush=True)  # the broker is away: with the next
            else:
                telling.committed()

    def on_revoke(_: object, partitions: list[Any]) -> None:
        commit()
        telling.revoked(each.partition for each in partitions)

    consumer.subscribe(
        [settings.topic],
        on_assign=lambda _, partitions: telling.assigned(each.partition for each in partitions),
        on_revoke=on_revoke,
        on_lost=lambda _, partitions: telling.revoked(each.partition for each in partitions),
    )
    while not telling.leaving:
        message = consumer.poll(POLL_S)
        if message is None:
            commit()
            continue
        if (error := message.error()) is not None:
            if error.code() == FATAL:
                raise KafkaException(error)
            print(error, file=sys.stderr, flush=True)
            continue
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        telling.read(partition, value)
    commit()
    consumer.close()


def kafka_python(settings: Settings, telling: Telling) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # without types
        def on_partitions_assigned(self, assigned: Any) -> None:
            telling.assigned(each.partition for each in assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            telling.revoked(each.partition for each in revoked)

    consumer = KafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        group_id=settings.group,
        group_instance_id=settings.instance,
        partition_assignment_strategy=[assignors[settings.assignor]],
        session_timeout_ms=settings.session_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
    )
    consumer.subscribe([settings.topic], listener=Listener())
    # Metadata must be here before the first join. When it comes later the group's leader joins again because of it, without
    # making a note of that; if that takes longer than one `poll`, the next `poll` sees nothing to finish, and the member is
    # silent for ever, on any broker (kafka-python 3.0.12; Java's consumer had it until KAFKA-9815).
    consumer.topics()
    while not telling.leaving:
        # It rebalances inside `poll` alone, so what came is committed before anything is given back. A join that ends between
        # two polls is thrown away, answer and assignment, and sent again (ensure_active_group of kafka-python 3.0.12, which
        # begins anew when it finds its task done); a partition that another member had in the generation thrown away is then
        # read on from where it was before that. A leader's second join is a rebalance on any broker. So a join gets one poll
        # for itself where that can be had, and two at most.
        poll_s = POLL_S if telling.has_assignment else JOIN_S
        for messages in consumer.poll(timeout_ms=int(poll_s * 1000)).values():
            for message in messages:
                telling.read(message.partition, message.value)
        if telling.is_behind:
            try:
                consumer.commit()
            except KafkaError as error:
                print(repr(error), file=sys.stderr, flush=True)
            else:
                telling.committed()
    consumer.close()


def aiokafka(settings: Settings, telling: Telling) -> None:
    asyncio.run(_aiokafka(settings, telling))


async def _aiokafka(settings: Settings, telling: Telling) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    # It rebalances at any moment, in a task of its own: not between a read and its commit. During a rebalance
    # `getmany` waits for its end, so it must not be called with the lock held.
    reading = asyncio.Lock()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # without types
        async def on_partitions_assigned(self, assigned: Any) -> None:
            telling.assigned(each.partition for each in assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            async with reading:
                telling.revoked(each.partition for each in revoked)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        group_id=settings.group,
        group_instance_id=settings.instance,
        partition_assignment_strategy=[assignors[settings.assignor]],
        session_timeout_ms=settings.session_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=50,
    )
    consumer.subscribe([settings.topic], listener=Listener())
    await consumer.start()
    while not telling.leaving:
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        async with reading:
            for messages in found.values():
                for message in messages:
                    telling.read(message.partition, message.value)
            if telling.is_behind:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    print(repr(error), file=sys.stderr, flush=True)
                else:
                    telling.committed()
    await consumer.stop()


CLIENTS: Final[dict[str, Callable[[Settings, Telling], None]]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    given = msgspec.json.decode(sys.argv[1], type=Settings)
    CLIENTS[given.client](given, Telling())
