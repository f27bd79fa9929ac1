"""A fleet of three brokers in three zones on a real etcd: every broker serves all clients, and each may die, as may etcd."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from logfleet.client.admin import Admin, ClusterDescription, NewTopic, ResourceType
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.metadata import Topic
from logfleet.log.names import DELETE_DIRECTORY
from logfleet.wire.errors import ErrorCode

from e2e.harness.clients import CLIENTS, JavaClient, Sent, free_of_time
from e2e.harness.processes import Broker, Fleet, Rig
from e2e.harness.topics import PATIENCE_S, create_topic
from e2e.load.groups import GROUP, MemberGroup
from e2e.load.numbers import Numbers, check_once_and_in_order, stored

pytestmark = pytest.mark.timeout(300)
T = TypeVar("T")
TOPIC = "numbers"
PARTITIONS = 6
PACE_S = 0.02
FEW = 20
ZONES = ["a", "b", "c"]


@pytest.fixture
def fleet(rig: Rig) -> Fleet:
    return rig.fleet(3, zones=ZONES)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that no test harms."""
    rig = Rig(tmp_path_factory.mktemp("fleet"))
    try:
        yield rig.fleet(3, zones=ZONES)
    finally:
        rig.close()


@pytest.fixture
def numbers(fleet: Fleet) -> Iterator[Numbers]:
    """A producer that writes to all brokers."""
    create_topic(fleet.bootstrap, TOPIC, PARTITIONS)
    producer = Numbers(fleet.bootstrap, TOPIC, PARTITIONS, PACE_S)
    producer.start()
    yield producer
    producer.stop()


def ask(
    broker: Broker, question: Callable[[Admin], Awaitable[T]], *, request_timeout_ms: int = 30_000
) -> T:
    """What this very broker answers; errors that clients retry are retried for a minute."""

    async def run() -> T:
        async with Client(broker.bootstrap, request_timeout_ms=request_timeout_ms) as client:
            return await question(Admin(client))

    return asyncio.run(run())


def described(broker: Broker) -> ClusterDescription:
    return ask(broker, lambda admin: admin.describe_cluster())


def topic_at(broker: Broker, name: str) -> Topic | None:
    return ask(broker, lambda admin: admin.find_topic(name))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s, f"not in time: {what}"
        time.sleep(0.05)


def leaders(broker: Broker, name: str) -> list[int]:
    """Broker id of each partition's leader, by this broker's word, once it has heard of the topic."""
    wait_until(lambda: topic_at(broker, name) is not None, f"{name} at {broker.name}")
    topic = topic_at(broker, name)
    assert topic is not None
    return [partition.leader for partition in topic.partitions]


def directories(broker: Broker, topic: str) -> set[str]:
    """Log directories of a topic; those on their way out (for file.delete.delay.ms) have another name."""
    found = {path.name for path in broker.data.glob(f"{topic}-*")}
    return {name for name in found if not name.endswith(DELETE_DIRECTORY)}


def contents(broker: Broker) -> dict[str, int]:
    """Size of every segment."""
    return {
        str(path.relative_to(broker.data)): path.stat().st_size
        for path in broker.data.glob("*/*.log")
    }


def test_topics_are_spread_evenly_over_the_zones(shared: Fleet) -> None:
    brokers = described(shared.brokers[0]).brokers
    assert [(broker.id, broker.rack) for broker in brokers] == [(1, "a"), (2, "b"), (3, "c")]
    of_all: Counter[int] = Counter()
    for number, partitions in enumerate((6, 7, 1, 1, 9)):
        create_topic(shared.bootstrap, f"spread-{number}", partitions)
        own = Counter(leaders(shared.brokers[1], f"spread-{number}"))
        assert max(own.values()) - min(own[each] for each in (1, 2, 3)) <= 1
        of_all += own
    assert sum(of_all.values()) == 24
    agreed = leaders(shared.brokers[1], "spread-4")
    wait_until(
        lambda: all(leaders(broker, "spread-4") == agreed for broker in shared.brokers), "agreement"
    )


def test_every_client_reaches_all_brokers_through_any_of_them(shared: Fleet) -> None:
    for number, (name, client) in enumerate([*CLIENTS.items(), ("java", JavaClient())]):
        one, other = shared.brokers[number % 3], shared.brokers[(number + 1) % 3]
        create_topic(one.bootstrap, name, 3)
        assert all(set(leaders(broker, name)) == {1, 2, 3} for broker in shared.brokers)
        sent = [Sent(b"%d" % each, b"%d" % each, 1_700_000_000_000) for each in range(60)]
        client.write(one.bootstrap, name, sent, "lz4")
        read = client.read(other.bootstrap, name, len(sent))
        assert sorted(free_of_time(read)) == sorted(free_of_time(sent)), name
        written = [
            sum(size for path, size in contents(broker).items() if path.startswith(name))
            for broker in shared.brokers
        ]
        assert all(written), f"{name} wrote to every broker: {written}"


def test_any_broker_takes_every_administrative_request(shared: Fleet) -> None:
    """The controller does it, whoever was asked."""
    for broker in shared.brokers:
        administer(broker, f"made-by-{broker.config['node.id']}", shared)


def administer(broker: Broker, name: str, fleet: Fleet) -> None:
    ask(broker, lambda admin: admin.create_topic(NewTopic(name, 3, 1)))
    assert set(leaders(broker, name)) == {1, 2, 3}
    ask(broker, lambda admin: admin.create_partitions(name, 5))
    wait_until(lambda: len(leaders(broker, name)) == 5, "five partitions")
    retention = {"retention.ms": "1234"}
    ask(broker, lambda admin: admin.alter_config(ResourceType.TOPIC, name, set_keys=retention))
    wait_until(
        lambda: ask(broker, lambda admin: admin.topic_config(name))["retention.ms"].value == "1234",
        "the new retention",
    )
    ask(broker, lambda admin: admin.delete_topic(name))
    wait_until(lambda: topic_at(broker, name) is None, "the topic's end")
    wait_until(
        lambda: not any(directories(each, name) for each in fleet.brokers), "the end of its logs"
    )


def test_a_replication_factor_that_cannot_be_had_is_refused_in_words(shared: Fleet) -> None:
    for broker in shared.brokers:
        with pytest.raises(KafkaError) as refused:
            ask(
                broker,
                lambda admin: admin.create_topic(NewTopic("much", 3, len(shared.brokers) + 1)),
            )
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "replication factor" in refused.value.message.lower()
        assert topic_at(broker, "much") is None


class Creations(threading.Thread):
    """Creates topics through one broker, one after the other. created: those that were confirmed."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._ending = threading.Event()
        self.created: list[str] = []
        self.failed: list[str] = []

    def run(self) -> None:
        while not self._ending.is_set() and not self.failed:
            name = f"created-{len(self.created)}"
            try:
                ask(self._broker, lambda admin, name=name: admin.create_topic(NewTopic(name, 3, 1)))  # type: ignore[misc]
            except KafkaError as error:
                # An attempt whose answer was lost with the controller may have been done.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    self.failed.append(str(error))
            except ClientError as error:
                self.failed.append(str(error))
            self.created.append(name)

    def wait_for(self, count: int) -> None:
        wanted = len(self.created) + count
        wait_until(lambda: len(self.created) >= wanted or bool(self.failed), f"{count} topics")
        assert self.failed == []

    def finish(self) -> None:
        self._ending.set()
        self.join()
        assert self.failed == []


def test_the_work_goes_on_when_the_controller_is_killed(fleet: Fleet, numbers: Numbers) -> None:
    controller = described(fleet.brokers[0]).controller_id
    victim = fleet.brokers[controller - 1]
    survivor = fleet.brokers[controller % 3]
    of_others = [
        index for index, leader in enumerate(leaders(survivor, TOPIC)) if leader != controller
    ]
    creations = Creations(survivor)
    creations.start()
    creations.wait_for(2)
    victim.kill()
    numbers.wait_for_some(FEW, of_others)
    creations.wait_for(2)
    creations.finish()
    assert described(survivor).controller_id not in {controller, -1}
    victim.start()
    numbers.wait_for(FEW)
    numbers.finish()
    check_once_and_in_order(numbers, stored(fleet.bootstrap, TOPIC, PARTITIONS))
    assert all(topic_at(victim, name) is not None for name in creations.created)


def test_killed_brokers_come_back_as_themselves(fleet: Fleet, numbers: Numbers) -> None:
    """An idempotent producer goes on over it: what it got confirmed is there once, in order."""
    before = leaders(fleet.brokers[0], TOPIC)
    for killed in (fleet.brokers[:1], fleet.brokers[1:]):
        ids = {int(broker.config["node.id"]) for broker in killed}
        numbers.wait_for(FEW)
        logs = [set(contents(broker)) for broker in killed]
        for broker in killed:
            broker.kill()
        numbers.wait_for_some(FEW, [each for each, led in enumerate(before) if led not in ids])
        for broker in killed:
            broker.launch()
        for broker in killed:
            broker.wait_ready()
        numbers.wait_for(FEW)
        assert [set(contents(broker)) for broker in killed] == logs
        wait_until(
            lambda: all(leaders(broker, TOPIC) == before for broker in fleet.brokers),
            "the leaders of before",
        )
    numbers.finish()
    check_once_and_in_order(numbers, stored(fleet.bootstrap, TOPIC, PARTITIONS))


def test_a_group_goes_on_when_its_coordinators_broker_is_killed(
    rig: Rig, fleet: Fleet, numbers: Numbers
) -> None:
    """It reads on from the other brokers meanwhile, commits afterwards, and nobody has to join again."""
    group = MemberGroup(
        rig,
        fleet.bootstrap,
        TOPIC,
        partitions=PARTITIONS,
        client="confluent-kafka",
        session_ms=120_000,
    )
    group.join()
    group.join()
    group.wait_balanced()
    numbers.wait_for(FEW)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    description = admin.describe_consumer_groups([GROUP])[GROUP].result(timeout=PATIENCE_S)
    coordinator = fleet.brokers[description.coordinator.id - 1]
    seen = [member.assignments for member in group.members]
    led = leaders(coordinator, TOPIC)
    coordinator.kill()
    numbers.wait_for_some(
        FEW, [i for i, id_ in enumerate(led) if id_ != description.coordinator.id]
    )
    coordinator.start()
    numbers.wait_for(FEW)
    numbers.finish()
    group.wait_read(numbers.written())
    assert [member.assignments for member in group.members] == seen
    group.leave()
    assert group.read_again() == set()
    assert group.committed() == [len(acknowledged) for acknowledged in numbers.acknowledged]


def test_a_deletion_reaches_a_broker_that_was_down(fleet: Fleet) -> None:
    for name in ("goes", "stays", "comes-again"):
        create_topic(fleet.bootstrap, name, 3)
        sent = [Sent(b"%d" % each, b"%d" % each, 1_700_000_000_000) for each in range(60)]
        CLIENTS["confluent-kafka"].write(fleet.bootstrap, name, sent, "none")
    down, up = fleet.brokers[2], fleet.brokers[0]
    down.kill()
    left = contents(down)
    wait_until(lambda: len(described(up).brokers) == 2, "the end of its registration")
    for name in ("goes", "comes-again"):
        ask(up, lambda admin, name=name: admin.delete_topic(name))  # type: ignore[misc]
    create_topic(up.bootstrap, "comes-again", 4)
    assert contents(down) == left
    down.start()
    for name in ("goes", "comes-again"):
        wait_until(lambda name=name: not directories(down, name), "the deletion")  # type: ignore[misc]
    assert topic_at(down, "goes") is None
    assert set(leaders(down, "comes-again")) == {1, 2}
    ends = AdminClient({"bootstrap.servers": down.bootstrap})
    assert sum(end_offsets(ends, "comes-again", 4)) == 0, "the new one of that name is empty"
    assert sum(end_offsets(ends, "stays", 3)) == 60


def end_offsets(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    answers = admin.list_offsets(wanted, request_timeout=PATIENCE_S)
    return [answer.result(timeout=PATIENCE_S).offset for answer in answers.values()]


def test_a_restart_of_etcd_is_not_noticed_by_producers(fleet: Fleet, numbers: Numbers) -> None:
    numbers.wait_for(FEW)
    fleet.etcd.kill()
    numbers.wait_for(1)  # within the leases' three seconds
    fleet.etcd.start()
    numbers.wait_for(FEW)
    ask(fleet.brokers[1], lambda admin: admin.create_topic(NewTopic("afterwards", 3, 1)))
    numbers.finish()
    check_once_and_in_order(numbers, stored(fleet.bootstrap, TOPIC, PARTITIONS))


def test_without_etcd_changes_are_refused_for_the_time_being(
    fleet: Fleet, numbers: Numbers
) -> None:
    """Whoever asks is told in time, by an error that clients retry; when etcd is back everything goes on by itself."""
    numbers.wait_for(FEW)
    fleet.etcd.kill()
    for broker in fleet.brokers:
        error = refused_creation(broker, "meanwhile")
        assert error in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER}
        assert error.retriable
    assert all(broker.running for broker in fleet.brokers)
    fleet.etcd.start()
    for broker in fleet.brokers:
        create_after_all(broker, f"after-{broker.config['node.id']}")
    numbers.wait_for(FEW)
    numbers.finish()
    check_once_and_in_order(numbers, stored(fleet.bootstrap, TOPIC, PARTITIONS))


def create_after_all(broker: Broker, name: str) -> None:
    """The controller may begin again amid the request: then it is done, and the retry finds it so."""
    try:
        ask(broker, lambda admin: admin.create_topic(NewTopic(name, 3, 1)))
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def refused_creation(broker: Broker, name: str) -> ErrorCode:
    """The error of one attempt that may take two seconds."""

    async def run() -> ErrorCode:
        async with Client(broker.bootstrap, request_timeout_ms=2_000, timeout_ms=0) as client:
            with pytest.raises(KafkaError) as refused:
                await Admin(client).create_topic(NewTopic(name, 3, 1))
            return refused.value.code

    return asyncio.run(run())


def test_brokers_do_not_serve_a_cluster_that_forgot_theirs(fleet: Fleet, numbers: Numbers) -> None:
    """A metadata store without the topics is no reason to delete their logs."""
    numbers.wait_for(FEW)
    numbers.finish()
    for broker in fleet.brokers:
        assert broker.terminate() == 0
    left = [contents(broker) for broker in fleet.brokers]
    assert all(left)
    fleet.etcd.kill()
    data: Path = fleet.etcd.directory / "data"
    kept = data.rename(fleet.etcd.directory / "kept")
    fleet.etcd.start()
    for broker in fleet.brokers:
        broker.launch()
    for broker in fleet.brokers:
        assert broker.wait() != 0
        assert "the metadata store knows no cluster" in broker.said()
    assert [contents(broker) for broker in fleet.brokers] == left
    fleet.etcd.kill()
    fleet.etcd.wipe()
    kept.rename(data)
    fleet.etcd.start()
    fleet.start()
    check_once_and_in_order(numbers, stored(fleet.bootstrap, TOPIC, PARTITIONS))
