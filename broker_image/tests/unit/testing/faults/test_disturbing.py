"""What a test does to brokers of its own, from the test's side."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from logfleet.testing import Broker, FaultMissed, Fleet, OrderFailed
from logfleet.testing.given import GivenKafka
from logfleet.testing.prepared import close_shared


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    close_shared()


@pytest.fixture(scope="module")
def broker(_nothing_is_left: None) -> Iterator[Broker]:
    with Broker(topics={"orders": 2}) as opened:
        yield opened


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "retry.backoff.ms": 10,
        "log_level": 0,
    }
    opened = Producer(settings)
    yield opened
    opened.purge()
    opened.flush(1)


def send(producer: Producer, topic: str, value: bytes, key: bytes | None = None) -> None:
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(20) == 0


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [each.value for each in broker.records(topic)]


def test_a_send_that_is_refused_or_loses_its_answer_is_written_once(
    broker: Broker, producer: Producer
) -> None:
    for _ in range(3):  # the next requests repeat these
        send(producer, "orders", b"before")
    end = broker.end("orders")
    with broker.fault("Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        send(producer, "orders", b"refused")
    assert fault.hits == 2
    with broker.fault("Produce", topic="orders", lose_answer=True) as fault:
        send(producer, "orders", b"lost")
        fault.wait()
    assert fault.hits == 1
    assert broker.end("orders") == end + 2
    assert values(broker, "orders")[-2:] == [b"refused", b"lost"]


def test_a_block_whose_fault_hits_nothing_fails(broker: Broker) -> None:
    with (
        pytest.raises(FaultMissed, match=r"fault\(api='Fetch', drop=True, partition=0\) hit no"),
        broker.fault("Fetch", drop=True, partition=0),
    ):
        pass
    with broker.fault("Fetch", drop=True, missed=True) as fault:
        pass
    assert fault.hits == 0
    assert broker.order("faults") == []


def test_the_reason_of_a_block_that_failed_by_itself_is_kept(broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError), broker.fault("Fetch", drop=True):
        _ = 1 / 0


def test_waiting_for_hits_ends_with_what_was_hit(broker: Broker, producer: Producer) -> None:
    with broker.fault("Produce", observe=True) as fault:
        send(producer, "orders", b"seen")
        fault.wait(1)
        with pytest.raises(FaultMissed, match=r"hit 1 of 5 requests in 0\.1 s"):
            fault.wait(5, timeout_s=0.1)
        (armed,) = broker.order("faults")
    assert armed["fault"] == {"api": "Produce", "observe": True, "every": 1, "times": 1}


def test_names_that_are_wrong_are_answered_by_the_nearest(broker: Broker) -> None:
    with pytest.raises(OrderFailed, match="did you mean Produce"):
        broker.fault("Produc", drop=True)
    with pytest.raises(OrderFailed, match="there is no fault 77"):
        broker.order("fault_hits", number=77)


def test_a_full_disk_takes_records_again_when_there_is_room(
    broker: Broker, producer: Producer
) -> None:
    end = broker.end("orders")
    with broker.disk_full():
        producer.produce("orders", b"full", partition=0)
        assert producer.flush(0.5) == 1
        assert broker.end("orders") == end
    assert producer.flush(20) == 0
    assert broker.end("orders") == end + 1


def test_a_slow_disk_delays_what_is_written(broker: Broker, producer: Producer) -> None:
    with broker.disk_slow(0.3), broker.fault("Produce", observe=True) as fault:
        producer.produce("orders", b"slow", partition=0)
        assert producer.flush(0.05) == 1
        assert producer.flush(20) == 0
    assert fault.hits == 1


def test_a_day_later_old_records_are_gone_also_after_a_restart(producer: Producer) -> None:
    with Broker(topics={"kept": 1}) as broker:
        broker.create_topic("short", config={"retention.ms": str(24 * 3_600_000)})
        own = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        send(own, "short", b"old")
        send(own, "kept", b"old")
        broker.advance(hours=25)
        send(own, "short", b"new")
        broker.restart()
        send(own, "short", b"newer")
        first, *_, last = broker.records("short")
        assert (first.offset, first.value, last.value) == (1, b"new", b"newer")
        assert values(broker, "kept") == [b"old"]
        own.purge()


def test_compaction_leaves_the_newest_value_of_each_key(broker: Broker, producer: Producer) -> None:
    broker.create_topic("prices", config={"cleanup.policy": "compact"})
    for n in range(3):
        send(producer, "prices", b"%d" % n, b"a")
    broker.compact_now("prices")
    assert [(each.offset, each.value) for each in broker.records("prices")] == [(2, b"2")]
    with pytest.raises(OrderFailed, match="orders has no partition here"):
        broker.compact_now("orders")


def test_a_producer_that_was_forgotten_goes_on(broker: Broker, producer: Producer) -> None:
    send(producer, "orders", b"1")
    assert broker.expire_producer() >= 1
    assert broker.expire_producer() == 0
    end = broker.end("orders")
    send(producer, "orders", b"2")
    assert broker.end("orders") == end + 1


def test_a_group_is_rebalanced_and_loses_a_member(broker: Broker, producer: Producer) -> None:
    group = broker.group("readers")
    with pytest.raises(OrderFailed, match="readers"):
        group.rebalance()
    send(producer, "orders", b"read")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "readers",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["orders"])
        assert consumer.poll(20) is not None
        state = group.wait(members=1)
        assert state.members[0].client_id == "reader"
        assert state.members[0].assignment == {"orders": [0, 1]}
        with broker.fault("JoinGroup", observe=True, group="readers") as joins:
            group.rebalance()
            while not joins.hits:
                consumer.poll(0.1)
        while group.wait(None).state != "Stable":
            consumer.poll(0.1)
        with pytest.raises(OrderFailed, match="group readers has no member other"):
            group.expire_member("other")
        assert group.expire_member("reader") == group_member(state)
        assert group.wait("Empty").members == ()
    finally:
        consumer.close()


def group_member(state: object) -> object:
    return state.members[0].member_id  # type: ignore[attr-defined]


def test_a_fleet_counts_the_hits_of_all_its_brokers() -> None:
    with Fleet(3, zones=["a", "b", "c"], topics={"orders": 1}) as fleet:
        old = fleet.leader("orders").id
        new = old % 3 + 1
        fleet.move_leader("orders", to=new)
        assert fleet.leader("orders").id == new
        with pytest.raises(OrderFailed, match="broker 9 has no replica of orders-0"):
            fleet.move_leader("orders", to=9)
        own = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "log_level": 0})
        with fleet.fault("Produce", observe=True) as fault:
            send(own, "orders", b"1")
            fault.wait()
            fleet[old].kill()
            send(own, "orders", b"2")
            assert fault.hits == 2
        assert len(fleet.records("orders", count=2)) == 2
        own.purge()


def test_faults_need_brokers_of_ones_own(broker: Broker) -> None:
    given = GivenKafka(broker.bootstrap)
    with pytest.raises(
        pytest.skip.Exception, match="fault needs a broker of its own, not --kafka-"
    ):
        given.fault("Produce", drop=True)
    with pytest.raises(pytest.skip.Exception, match="rebalance needs a broker of its own"):
        given.group("readers").rebalance()
    assert given.in_sync("orders", count=1) == [broker.id]
    assert given.group("nobody").committed("orders") is None
