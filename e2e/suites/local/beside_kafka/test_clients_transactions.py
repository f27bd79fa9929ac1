"""Transactions of confluent-kafka, kafka-python and aiokafka: the same steps on Apache Kafka 4.4.0 and on a broker of ours."""

from contextlib import closing

import pytest

from e2e.compare.brokers import Pair
from e2e.harness.command_line import until
from e2e.harness.topics import create_topic, write
from e2e.harness.transactional_clients import TRANSACTIONAL_CLIENTS, TransactionalClient

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
LAST = b"last"
"""Written to each partition without a transaction, behind everything else."""
PARTITIONS = 2
TOO_LONG_MS = 900_001
"""The brokers' transaction.max.timeout.ms is 900,000."""


@pytest.fixture(params=["kafka", "ours"])
def bootstrap(request: pytest.FixtureRequest, beside: Pair) -> str:
    return f"127.0.0.1:{getattr(beside, request.param).port}"


@pytest.fixture(params=TRANSACTIONAL_CLIENTS)
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    return TRANSACTIONAL_CLIENTS[request.param]


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Return a new topic's name, which is also the transactional id and the group."""
    name = "".join(each for each in request.node.name if each.isalnum())
    create_topic(bootstrap, name, PARTITIONS)
    return name


def write_last(bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, [(None, LAST, partition) for partition in range(PARTITIONS)])


def read(
    client: TransactionalClient, bootstrap: str, topic: str, isolation: str = "read_committed"
) -> list[bytes]:
    """All values but the last ones, sorted."""
    with closing(client.reader(bootstrap, topic, f"{topic}-{isolation}", isolation)) as reader:
        return sorted(reader.values(LAST, PARTITIONS))


def test_what_is_aborted_is_read_by_none_but_readers_of_everything(
    client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    with closing(client.producer(bootstrap, topic)) as producer:
        for number in range(6):
            producer.begin()
            for partition in range(PARTITIONS):
                producer.send(topic, b"%d" % number, partition)
            (producer.abort if number % 2 else producer.commit)()
        producer.begin()  # ends without a record
        producer.commit()
        producer.begin()
        producer.abort()
    write_last(bootstrap, topic)
    assert read(client, bootstrap, topic) == [b"0", b"0", b"2", b"2", b"4", b"4"]
    everything = read(client, bootstrap, topic, "read_uncommitted")
    assert everything == [b"%d" % (n // PARTITIONS) for n in range(6 * PARTITIONS)]


def test_a_second_producer_ends_the_transaction_of_the_first_and_fences_it(
    client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    with closing(client.producer(bootstrap, topic)) as first:
        first.begin()
        first.send(topic, b"first", 0)
        with closing(client.producer(bootstrap, topic)) as second:
            second.begin()
            second.send(topic, b"second", 1)
            with pytest.raises(client.error, match=client.fenced):
                first.commit()
            second.commit()
    write_last(bootstrap, topic)
    assert read(client, bootstrap, topic) == [b"second"]


def test_offsets_are_committed_with_the_records_or_not_at_all(
    client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    read_from = f"{topic}-input"
    create_topic(bootstrap, read_from, 1)
    write(bootstrap, read_from, [(None, b"in", 0), (None, LAST, 0)])
    with (
        closing(client.reader(bootstrap, read_from, topic)) as reader,
        closing(client.producer(bootstrap, topic)) as producer,
    ):
        assert reader.values(LAST, 1) == [b"in"]
        for offset, end in ((1, producer.abort), (2, producer.commit)):
            producer.begin()
            producer.send(topic, b"%d" % offset, 0)
            producer.add_offsets({(read_from, 0): offset}, reader.member())
            end()
        # Kafka gives the former offset for a moment after the marker
        until(lambda: reader.committed(read_from, 0) == 2)
    write_last(bootstrap, topic)
    assert read(client, bootstrap, topic) == [b"2"]


@pytest.mark.parametrize(
    "client", [each for each in TRANSACTIONAL_CLIENTS.values() if each.stale is not None]
)
def test_a_member_that_has_left_its_group_commits_nothing(
    client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    """Of the clients that name a member with the offsets; the others name only its group."""
    write(bootstrap, topic, [(None, LAST, 0)])
    with closing(client.reader(bootstrap, topic, topic)) as reader:
        assert reader.values(LAST, 1) == []
        member = reader.member()
    with closing(client.producer(bootstrap, topic)) as producer:
        producer.begin()
        producer.send(topic, b"aborted", 1)
        with pytest.raises(client.error, match=str(client.stale)):
            producer.add_offsets({(topic, 0): 1}, member)
        producer.abort()
        producer.begin()
        producer.send(topic, b"committed", 1)
        producer.commit()
    with closing(client.reader(bootstrap, topic, topic)) as reader:
        assert reader.values(LAST, 1) == [b"committed"]
        assert reader.committed(topic, 0) is None


def test_a_timeout_beyond_the_brokers_limit_is_refused(
    client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    with pytest.raises(client.error, match=client.too_long):
        client.producer(bootstrap, topic, TOO_LONG_MS)
