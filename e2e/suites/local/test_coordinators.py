"""Group coordinators on replicated offsets: they move with their partitions, also from the broker that was the first and only one."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from e2e.harness.processes import Broker, Fleet, Rig
from e2e.harness.topics import PATIENCE_S, create_topic
from e2e.load.groups import GROUP, MemberGroup
from e2e.load.numbers import Numbers

pytestmark = pytest.mark.timeout(300)
OFFSETS = "__consumer_offsets"
TOPIC = "numbers"
PARTITIONS = 6
PACE_S = 0.02
FEW = 20
GROUPS = 8


def in_sync(fleet: Fleet, topic: str, replicas: int) -> bool:
    admin = AdminClient({"bootstrap.servers": fleet.brokers[0].bootstrap})
    described = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
    return described is not None and all(
        len(partition.isrs) == len(partition.replicas) == replicas
        for partition in described.partitions.values()
    )


def wait_in_sync(fleet: Fleet, topic: str, replicas: int) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not in_sync(fleet, topic, replicas):
        assert time.monotonic() < give_up_s, f"{topic} has not {replicas} replicas in sync"
        time.sleep(0.1)


def consumer_of(fleet: Fleet, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": fleet.bootstrap, "group.id": group})


def again_elsewhere(ask: Callable[[], list[TopicPartition] | None]) -> list[TopicPartition]:
    """The answer of whoever coordinates by then: librdkafka tells the application that a broker does not coordinate any more, or not yet."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask() or []
        except KafkaException as error:
            told = error.args[0].code()
            if told != KafkaError.NOT_COORDINATOR or time.monotonic() > give_up_s:
                raise


def committed(consumer: Consumer, wanted: list[TopicPartition]) -> list[TopicPartition]:
    return again_elsewhere(lambda: consumer.committed(wanted, timeout=PATIENCE_S))


def test_groups_of_the_first_broker_go_on_when_it_dies_after_two_more_came(rig: Rig) -> None:
    config = {"min.insync.replicas": "2"}
    fleet = rig.fleet(1, zones=["a"], config=config)
    create_topic(fleet.bootstrap, TOPIC, 1)
    for number in range(GROUPS):
        consumer = consumer_of(fleet, f"group-{number}")
        offset = TopicPartition(TOPIC, 0, 100 + number)
        consumer.commit(offsets=[offset], asynchronous=False)
        consumer.close()
    assert in_sync(fleet, OFFSETS, 1)
    for number, zone in ((2, "b"), (3, "c")):
        own = {"node.id": str(number), "broker.rack": zone, **config}
        fleet.add(rig.own(Broker(rig.directory / f"broker-{number}", own, f"broker-{number}")))
        fleet.brokers[-1].start()
    wait_in_sync(fleet, OFFSETS, 3)
    fleet.brokers[0].kill()
    for number in range(GROUPS):
        consumer = consumer_of(fleet, f"group-{number}")
        (found,) = committed(consumer, [TopicPartition(TOPIC, 0)])
        assert found.offset == 100 + number
        later = [TopicPartition(TOPIC, 0, 200 + number)]
        again_elsewhere(partial(consumer.commit, offsets=later, asynchronous=False))
        consumer.close()


def coordinator_of(bootstrap: str) -> int:
    """By a client of its own: librdkafka's goes on asking the coordinator that it knows, dead or not."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([GROUP])[GROUP].result(timeout=PATIENCE_S)
    return int(described.coordinator.id)


class Commits(threading.Thread):
    """Asks again and again what the group has committed. back: where an offset was smaller than one told before.

    What ended it too early is raised by finish().
    """

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._consumer = consumer_of(fleet, GROUP)
        self._ending = threading.Event()
        self._error: KafkaException | None = None
        self.asked = 0
        self.back: list[tuple[list[int], list[int]]] = []

    def run(self) -> None:
        try:
            self._ask()
        except KafkaException as error:
            self._error = error
        finally:
            self._consumer.close()

    def _ask(self) -> None:
        before = [OFFSET_INVALID] * PARTITIONS  # that of a group that has not committed yet
        wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        while not self._ending.is_set():
            told = committed(self._consumer, wanted)
            found = [each.offset for each in told]
            if any(new < old for new, old in zip(found, before, strict=True)):
                self.back.append((before, found))
            before = found
            self.asked += 1

    def finish(self) -> None:
        self._ending.set()
        self.join()
        if self._error is not None:
            raise self._error


@pytest.fixture
def fleet(rig: Rig) -> Fleet:
    config = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    return rig.fleet(3, zones=["a", "b", "c"], config=config)


@pytest.fixture
def numbers(fleet: Fleet) -> Iterator[Numbers]:
    create_topic(fleet.bootstrap, TOPIC, PARTITIONS, replicas=3)
    producer = Numbers(fleet.bootstrap, TOPIC, PARTITIONS, PACE_S)
    producer.start()
    yield producer
    producer.stop()


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
def test_a_group_goes_on_with_another_coordinator_and_commits_never_go_back(
    rig: Rig, fleet: Fleet, numbers: Numbers, client: str
) -> None:
    group = MemberGroup(
        rig,
        fleet.bootstrap,
        TOPIC,
        partitions=PARTITIONS,
        client=client,
        session_ms=60_000,
    )
    group.join()
    group.join()
    group.wait_balanced()
    numbers.wait_for(FEW)
    wait_in_sync(fleet, OFFSETS, 3)
    commits = Commits(fleet)
    commits.start()
    victim = coordinator_of(fleet.bootstrap)
    asked = commits.asked
    fleet.brokers[victim - 1].kill()
    numbers.wait_for(FEW)
    numbers.finish()
    group.wait_read(numbers.written())
    assert coordinator_of(fleet.bootstrap) != victim
    group.leave()
    commits.finish()
    assert commits.asked > asked
    assert commits.back == []
    assert group.committed() == [len(acknowledged) for acknowledged in numbers.acknowledged]
