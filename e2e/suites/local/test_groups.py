"""Consumer groups of several members: they come, go, die and come back; their coordinator stops, dies and comes back."""

import re
from collections.abc import Iterator

import pytest
from logfleet.testing import Broker

from e2e.harness.kafka import tool_command
from e2e.harness.processes import Rig
from e2e.load.groups import GROUP, MemberGroup
from e2e.load.numbers import Numbers

pytestmark = pytest.mark.timeout(300)
TOPIC = "numbers"
PARTITIONS = 6
PACE_S = 0.02
SESSION_MS = 10_000
FEW = 20
"""Records per partition between two events."""


@pytest.fixture
def broker(kafka_broker: Broker) -> Broker:
    kafka_broker.create_topic(TOPIC, PARTITIONS)
    return kafka_broker


@pytest.fixture
def numbers(broker: Broker) -> Iterator[Numbers]:
    producer = Numbers(broker.bootstrap, TOPIC, PARTITIONS, PACE_S)
    producer.start()
    yield producer
    producer.stop()


def group_of(rig: Rig, broker: Broker, client: str, **settings: object) -> MemberGroup:
    return MemberGroup(
        rig, broker.bootstrap, TOPIC, partitions=PARTITIONS, client=client, **settings
    )


@pytest.mark.parametrize(
    "client, assignor",
    [
        ("confluent-kafka", "range"),
        ("confluent-kafka", "roundrobin"),
        ("confluent-kafka", "cooperative-sticky"),
        ("kafka-python", "roundrobin"),
        ("kafka-python", "cooperative-sticky"),
        ("aiokafka", "range"),
    ],
)
def test_members_come_and_go_and_every_record_is_read_once(
    rig: Rig, broker: Broker, numbers: Numbers, client: str, assignor: str
) -> None:
    group = group_of(rig, broker, client, assignor=assignor)
    first = group.join()
    group.wait_balanced()
    group.join()
    group.join()
    group.wait_balanced()
    numbers.wait_for(FEW)
    assert first.terminate() == 0
    group.wait_balanced()
    numbers.wait_for(FEW)
    numbers.finish()
    group.wait_read(numbers.written())
    group.leave()
    assert group.read_again() == set()
    assert group.committed() == [len(acknowledged) for acknowledged in numbers.acknowledged]


@pytest.mark.parametrize(
    "client, instances",
    [("confluent-kafka", ()), ("kafka-python", ("a", "b", "c")), ("aiokafka", ())],
)
def test_the_others_take_over_what_a_killed_member_had(
    rig: Rig, broker: Broker, numbers: Numbers, client: str, instances: tuple[str, ...]
) -> None:
    """Also from a static member (`instances`): after its session it is no different."""
    group = group_of(rig, broker, client, session_ms=SESSION_MS)
    for number in range(3):
        group.join(instance=instances[number] if instances else None)
    group.wait_balanced()
    numbers.wait_for(FEW)
    victim = group.members[1]
    victim.kill()
    group.wait_balanced()
    numbers.wait_for(FEW)
    numbers.finish()
    group.wait_read(numbers.written())
    assert group.read_again() <= set(victim.uncommitted), "what was committed is not read again"
    assert f"no heartbeat within {SESSION_MS} ms" in broker.log


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_static_member_that_restarts_disturbs_nobody(
    rig: Rig, broker: Broker, numbers: Numbers, client: str
) -> None:
    group = group_of(rig, broker, client, session_ms=120_000)
    stays, leaves = group.join(instance="stays"), group.join(instance="comes-back")
    group.wait_balanced()
    share, seen = leaves.owned, stays.assignments
    numbers.wait_for(FEW)
    assert leaves.terminate() == 0
    numbers.wait_for(FEW)
    comes_back = group.join(instance="comes-back")
    group.wait_balanced()
    comes_back.kill()
    again = group.join(instance="comes-back")
    group.wait_balanced()
    numbers.finish()
    group.wait_read(numbers.written())
    assert comes_back.owned == again.owned == share
    assert stays.assignments == seen, "the other one was not asked to join again"
    assert group.read_again() <= set(comes_back.uncommitted)


def test_a_static_members_double_puts_it_out(rig: Rig, broker: Broker, numbers: Numbers) -> None:
    group = group_of(rig, broker, "confluent-kafka")
    first = group.join(instance="one")
    group.wait_balanced()
    second = group.join(instance="one")
    assert first.wait() != 0
    assert "Static consumer fenced by other consumer" in first.tail()
    group.wait_balanced()
    numbers.finish()
    group.wait_read(numbers.written())
    assert second.running


@pytest.mark.parametrize(
    "client, fault",
    [
        pytest.param("confluent-kafka", "restart", marks=pytest.mark.full),
        ("confluent-kafka", "kill"),
        pytest.param("kafka-python", "kill", marks=pytest.mark.full),
        ("aiokafka", "restart"),
    ],
)
def test_a_group_outlives_its_coordinator(
    rig: Rig, broker: Broker, numbers: Numbers, client: str, fault: str
) -> None:
    """Members go on in the same generation, from the offsets that they committed."""
    group = group_of(rig, broker, client, session_ms=120_000)
    group.join()
    group.join()
    group.wait_balanced()
    numbers.wait_for(FEW)
    seen = [member.assignments for member in group.members]
    if fault == "kill":
        broker.kill()
        broker.start()
    else:
        broker.restart()
    numbers.wait_for(FEW)
    group.wait_read(numbers.written())
    assert [member.assignments for member in group.members] == seen
    third = group.join()
    group.wait_balanced()
    numbers.wait_for(FEW)
    numbers.finish()
    group.wait_read(numbers.written())
    group.leave()
    assert group.read_again() == set()
    assert group.committed() == [len(acknowledged) for acknowledged in numbers.acknowledged]
    assert third.read


def test_a_rebalance_that_died_with_the_coordinator_begins_anew(
    rig: Rig, broker: Broker, numbers: Numbers
) -> None:
    group = group_of(rig, broker, "confluent-kafka", session_ms=120_000)
    sleeper = group.join()
    group.join()
    group.wait_balanced()
    sleeper.pause()
    known = broker.log.count("rebalance_started")
    group.join()
    group.wait(lambda: broker.log.count("rebalance_started") > known, "a rebalance")
    broker.kill()
    broker.start()
    sleeper.resume()
    group.wait_balanced()
    numbers.wait_for(FEW)
    numbers.finish()
    group.wait_read(numbers.written())
    group.leave()
    assert group.read_again() == set()
    assert group.committed() == [len(acknowledged) for acknowledged in numbers.acknowledged]


def test_javas_console_consumer_shares_a_group_with_another_client(
    rig: Rig, broker: Broker, numbers: Numbers
) -> None:
    group = group_of(rig, broker, "confluent-kafka")
    group.join()
    group.wait_balanced()
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--group", GROUP]
    arguments += ["--formatter-property", "print.partition=true", "--from-beginning"]
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    java = rig.program("java", tool_command(main, arguments))
    java.launch()
    (first,) = group.members
    group.wait(lambda: len(first.owned) == PARTITIONS // 2, "half for each")
    java.wait_until(lambda: java.said().count("Partition:") > FEW)
    java.terminate()
    group.wait_balanced()
    numbers.finish()
    read = {
        (int(partition), int(value))
        for partition, value in re.findall(r"^Partition:(\d+)\t(\d+)$", java.said(), re.MULTILINE)
    }
    group.wait_read(numbers.written() - read)
    assert group.times_read().keys().isdisjoint(read), "what Java has committed is not read again"
