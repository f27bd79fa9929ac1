"""Every client reads what every client wrote, in every codec: keys, values, headers, timestamps, order."""

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from logfleet.testing import Broker

from e2e.harness.clients import CLIENTS, CODECS, Client, JavaClient, Sent, by_key, free_of_time

PARTITIONS = 3
PER_WRITER = 200
START_MS = 1_700_000_000_000


def records_of(writer: str, client: Client) -> list[Sent]:
    """Different sizes, keys that spread over the partitions, and (where the client can) headers and null values."""
    made = []
    for number in range(PER_WRITER):
        key = f"{writer}/{number % 20}".encode()
        value: bytes | None = f"{writer} says {number} ".encode() * (1 + number % 50)
        if client.has_nulls and number % 50 == 7:
            value = None
        headers: tuple[tuple[str, bytes], ...] = ()
        if client.has_headers and number % 3:
            headers = (("writer", writer.encode()), ("number", b"%d" % number))
        made.append(Sent(key, value, START_MS + number, headers))
    return made


def create_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, partitions, 1)])
    created[topic].result(timeout=30)


def check_read(read: list[Sent], sent: dict[str, list[Sent]], own_times: set[str]) -> None:
    """All that was sent was read, in order per key, and nothing else. own_times: writers that set their own time."""
    got = by_key(read)
    wanted = by_key([record for records in sent.values() for record in records])
    assert got.keys() == wanted.keys()
    now_ms = time.time() * 1000
    for key, records in wanted.items():
        assert key is not None
        if key.decode().partition("/")[0] in own_times:
            assert free_of_time(got[key]) == free_of_time(records)
            assert all(START_MS < record.timestamp <= now_ms + 1000 for record in got[key])
        else:
            assert got[key] == records


@pytest.fixture
def broker(kafka_broker: Broker) -> Broker:
    return kafka_broker


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_every_client_wrote(broker: Broker, codec: str) -> None:
    topic = f"records-{codec}"
    create_topic(broker.bootstrap, topic)
    sent = {}
    for name, client in CLIENTS.items():
        sent[name] = records_of(name, client)
        client.write(broker.bootstrap, topic, sent[name], codec)
    for reader in CLIENTS.values():
        read = reader.read(broker.bootstrap, topic, PER_WRITER * len(CLIENTS))
        check_read(read, sent, own_times={"kcat"})


@pytest.mark.timeout(300)
def test_javas_tools_and_librdkafka_read_each_others_records(broker: Broker) -> None:
    java, other = JavaClient(), CLIENTS["confluent-kafka"]
    for codec in CODECS:
        topic = f"java-{codec}"
        create_topic(broker.bootstrap, topic)
        sent = {"java": records_of("java", java), "other": records_of("other", java)}
        java.write(broker.bootstrap, topic, sent["java"], codec)
        other.write(broker.bootstrap, topic, sent["other"], codec)
        for reader in (java, other):
            read = reader.read(broker.bootstrap, topic, 2 * PER_WRITER)
            check_read(read, sent, own_times={"java"})
