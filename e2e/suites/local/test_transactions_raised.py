"""A fleet gets transactions while clients run: brokers of the next version one by one, then the feature level. No broker restarts for the level."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from e2e.harness.command_line import said, until
from e2e.harness.processes import Fleet, Rig
from e2e.harness.topics import are_whole, create_topic, read, write
from e2e.harness.transactional_clients import TRANSACTIONAL_CLIENTS

LEVEL = "logfleet.feature.level.max"
CONFIG = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "3",
    LEVEL: "2",
}
PATIENCE_S = 60.0
LAST = b"last"
TOO_OLD = "This version does not serve transactions"
TOO_LOW = "logfleet features upgrade 3"
SETTLED_S = 30.0


@contextmanager
def writing(fleet: Fleet) -> Iterator[list[int]]:
    """An idempotent producer writes numbers to t-0 until the block ends; yields those that it has sent."""
    producer = Producer(
        {"bootstrap.servers": fleet.bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )
    sent: list[int] = []
    failed: list[object] = []
    over = threading.Event()

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    def write() -> None:
        while not over.wait(0.01):
            number = len(sent)
            producer.produce("t", b"%d" % number, partition=0, on_delivery=delivered)
            sent.append(number)
            producer.poll(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield sent
    finally:
        over.set()
        writer.join()
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def is_refused(fleet: Fleet, why: str = f"{TOO_OLD}|{TOO_LOW}") -> None:
    """A producer with a transactional id gives up at once; it depends on the broker what it reads."""
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "transactional.id": "early"})
    with pytest.raises(KafkaException, match=why) as raised:
        producer.init_transactions(PATIENCE_S)
    assert raised.value.args[0].fatal()


@pytest.mark.timeout(400)
@pytest.mark.full
def test_producers_are_refused_before_and_served_after_and_no_record_is_lost(rig: Rig) -> None:
    fleet = rig.fleet(3, config=CONFIG)
    create_topic(fleet.bootstrap, "t", 1, replicas=3)
    create_topic(fleet.bootstrap, "out", 2, replicas=3)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    with writing(fleet) as sent:
        is_refused(fleet, TOO_OLD)
        for broker in fleet.brokers:
            broker.config[LEVEL] = "3"
            broker.restart()
            until(lambda: are_whole(admin, SETTLED_S, 3))
            is_refused(fleet)
        is_refused(fleet, TOO_LOW)
        running = [broker.pid for broker in fleet.brokers]
        said(fleet, "features", "upgrade", "3", "--yes")
        for name, client in TRANSACTIONAL_CLIENTS.items():
            with closing(client.producer(fleet.bootstrap, name)) as producer:
                for end, value in ((producer.abort, b"aborted"), (producer.commit, b"committed")):
                    producer.begin()
                    producer.send("out", value, 0)
                    producer.send("out", value, 1)
                    end()
        write(fleet.bootstrap, "out", [(None, LAST, partition) for partition in (0, 1)])
        for name, client in TRANSACTIONAL_CLIENTS.items():
            with closing(client.reader(fleet.bootstrap, "out", name)) as reader:
                assert reader.values(LAST, 2) == [b"committed"] * 2 * len(TRANSACTIONAL_CLIENTS)
        assert [broker.pid for broker in fleet.brokers] == running
    assert [int(each.value) for each in read(fleet.bootstrap, "t")] == sent
