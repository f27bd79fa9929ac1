"""The error paths of docs/how-to/error-paths.md, each with every client: the page shows these functions."""

import logfleet.testing
import pytest
from logfleet.testing import Broker, Fleet

from e2e.suites.local.testing.clients import Opened

quick_sessions = logfleet.testing.broker(config={"group.min.session.timeout.ms": "500"})


def values(kafka: Broker | Fleet, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def test_the_leader_moves_under_a_producer(kafka_fleet: Fleet, client: Opened) -> None:
    """A producer that waits for all replicas finds the new leader by itself. Without idempotence the
    records behind the move may come before the ones that are sent again.
    """
    kafka_fleet.create_topic("orders")
    producer = client.producer(kafka_fleet.bootstrap)
    producer.send("orders", b"before")
    assert producer.flush() == 0

    leader = kafka_fleet.leader("orders").id
    kafka_fleet.move_leader("orders", to=leader % 3 + 1)
    producer.send("orders", b"after")

    assert producer.flush() == 0
    assert values(kafka_fleet, "orders") == [b"before", b"after"]


def test_the_answer_to_an_append_is_lost(kafka_broker: Broker, client: Opened) -> None:
    """The broker has written the record, and the producer cannot know. It sends again; an idempotent
    producer's second copy is recognised by its sequence number. Without `enable.idempotence` this
    test finds two.
    """
    kafka_broker.create_topic("orders")
    producer = client.producer(kafka_broker.bootstrap)

    with kafka_broker.fault("Produce", topic="orders", lose_answer=True):
        producer.send("orders", b"once")
        assert producer.flush() == 0

    assert kafka_broker.end("orders") == 1  # it was sent twice, and is there once


def test_a_worker_ends_between_its_result_and_its_commit(
    kafka_broker: Broker, client: Opened
) -> None:
    """The next worker gets the same record once more. A result has to bear that: an upsert by a
    key of the record, or a transaction that writes result and offset together.
    """
    kafka_broker.create_topic("orders")
    producer = client.producer(kafka_broker.bootstrap)
    producer.send("orders", b"order 1")
    assert producer.flush() == 0

    worker = client.consumer(kafka_broker.bootstrap, "orders", "billing")
    (order,) = worker.take()
    producer.send("invoices", b"invoice of " + order)
    assert producer.flush() == 0
    kafka_broker.group("billing").expire_member()  # as if it had been killed

    other = client.consumer(kafka_broker.bootstrap, "orders", "billing")
    assert other.take() == [b"order 1"]  # again: write results so that twice does no harm


def test_a_rebalance_takes_the_partition_while_a_batch_is_processed(
    kafka_broker: Broker, client: Opened
) -> None:
    """The group thinks that the worker is gone, because it was busy for longer than its session. Its
    commit is refused: what it processed is read again, maybe by another one.
    """
    kafka_broker.create_topic("orders")
    producer = client.producer(kafka_broker.bootstrap)
    producer.send("orders", b"order 1")
    assert producer.flush() == 0
    worker = client.consumer(kafka_broker.bootstrap, "orders", "billing")
    assert worker.take() == [b"order 1"]

    kafka_broker.group("billing").expire_member()

    with pytest.raises(client.refused):
        worker.commit()
    assert worker.take() == [b"order 1"]  # once it has joined again
    worker.commit()


def test_the_coordinator_moves_before_a_commit(kafka_fleet: Fleet, client: Opened) -> None:
    """Groups are kept by the broker that leads a partition of `__consumer_offsets`. When that moves, a
    commit is refused with NOT_COORDINATOR, and the client asks who it is now.
    """
    kafka_fleet.create_topic("orders")
    producer = client.producer(kafka_fleet.bootstrap)
    producer.send("orders", b"order 1")
    assert producer.flush() == 0
    worker = client.consumer(kafka_fleet.bootstrap, "orders", "billing")
    assert worker.take() == [b"order 1"]

    coordinator = kafka_fleet.leader("__consumer_offsets").id
    kafka_fleet.move_leader("__consumer_offsets", to=coordinator % 3 + 1)
    worker.commit()

    assert kafka_fleet.group("billing").committed("orders") == 1


def test_the_committed_offset_is_gone_after_a_day(kafka_broker: Broker, client: Opened) -> None:
    """Retention has removed the record that a group would read next. What happens then is a setting of
    the client: `auto.offset.reset`.
    """
    kafka_broker.create_topic("orders", config={"retention.ms": "86400000"})
    producer = client.producer(kafka_broker.bootstrap)
    for number in range(3):
        producer.send("orders", b"old %d" % number)
    assert producer.flush() == 0
    worker = client.consumer(kafka_broker.bootstrap, "orders", "billing")
    worker.take(3)
    worker.close()  # without a commit: it stands before the first record

    kafka_broker.advance(hours=25)
    producer.send("orders", b"new")
    assert producer.flush() == 0

    other = client.consumer(kafka_broker.bootstrap, "orders", "billing")
    assert other.take() == [b"new"]  # auto.offset.reset=earliest; "none" raises


def test_two_of_three_brokers_stand_still(kafka_fleet: Fleet, client: Opened) -> None:
    """With `min.insync.replicas` 2 a single replica takes no record: NOT_ENOUGH_REPLICAS. It can be read
    all the time, and takes records again once another broker is in sync.
    """
    kafka_fleet.create_topic("orders")
    producer = client.producer(kafka_fleet.bootstrap)
    producer.send("orders", b"all there")
    assert producer.flush() == 0
    leader = kafka_fleet.leader("orders")
    others = [each for each in kafka_fleet if each is not leader]

    for each in others:
        each.pause()
    kafka_fleet.in_sync("orders", count=1, timeout_s=30)
    with leader.fault("Produce", observe=True) as sends:
        producer.send("orders", b"waits for a second replica")
        sends.wait(2)  # NOT_ENOUGH_REPLICAS: it is sent again
    for each in others:
        each.resume()

    assert producer.flush() == 0
    assert values(kafka_fleet, "orders") == [b"all there", b"waits for a second replica"]


def test_the_disk_is_full_for_a_while(kafka_broker: Broker, client: Opened) -> None:
    """The broker refuses records with KAFKA_STORAGE_ERROR until there is room, which producers retry for
    `delivery.timeout.ms` (librdkafka: `message.timeout.ms`). Consumers go on.
    """
    kafka_broker.create_topic("orders")
    producer = client.producer(kafka_broker.bootstrap)

    with kafka_broker.disk_full():
        producer.send("orders", b"waits for room")
        assert producer.flush(0.5) == 1

    assert producer.flush() == 0
    assert values(kafka_broker, "orders") == [b"waits for room"]


def test_a_fetch_is_torn(kafka_broker: Broker, client: Opened) -> None:
    """A response may end in the middle of a batch. Clients drop the part and fetch it again; nothing is
    lost or read twice. If not even its first batch is whole, librdkafka fetches again; aiokafka and
    kafka-python raise an error.
    """
    kafka_broker.create_topic("orders")
    producer = client.producer(kafka_broker.bootstrap)
    for value in (b"one", b"two"):
        producer.send("orders", value)
        assert producer.flush() == 0

    with kafka_broker.fault("Fetch", topic="orders", tear=100):  # in the second batch
        reader = client.consumer(kafka_broker.bootstrap, "orders", "billing")
        assert reader.take(2) == [b"one", b"two"]  # what was cut is fetched again


def test_heartbeats_are_slower_than_the_session(quick_sessions: Broker, client: Opened) -> None:
    """A network that is slow for longer than `session.timeout.ms` costs a member its partitions, while
    it goes on working. It learns of that by a commit that is refused.
    """
    quick_sessions.create_topic("orders")
    producer = client.producer(quick_sessions.bootstrap)
    producer.send("orders", b"order 1")
    assert producer.flush() == 0
    worker = client.consumer(quick_sessions.bootstrap, "orders", "billing", session_ms=1_000)
    assert worker.take() == [b"order 1"]

    with quick_sessions.fault("Heartbeat", group="billing", delay_s=3):
        quick_sessions.group("billing").wait("Empty")
        with pytest.raises(client.refused):
            worker.commit()
