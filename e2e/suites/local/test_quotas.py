"""Quotas of clients: the same answers and throttle times as Apache Kafka 4.4.0, and clients that slow down to their rate."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import kafka as kafka_python
import pytest
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare.brokers import Pair
from e2e.compare.side import Side
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
Names = tuple[tuple[str, str | None], ...]
Limits = dict[str, float | None]
U: Names = (("user", "u"),)
C: Names = (("client-id", "c"),)
UC: Names = (("client-id", "c"), ("user", "u"))
IP: Names = (("ip", "1.2.3.4"),)
P, R, X, MUT = (
    "producer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
    "controller_mutation_rate",
)
EXACT, DEFAULT, ANY = 0, 1, 2
TOPIC = "quotas"
WINDOWS_MS = 10_000
"""What ten full windows of the default length last: the span of a rate that has just begun."""
LATER: Names = (("client-id", "later"),)
"""Nobody's."""


def alter(broker: Side, *entries: tuple[Names, Limits], validate_only: bool = False) -> Any:
    kind = m.AlterClientQuotasRequest
    request = kind(
        entries=[
            kind.EntryData(
                entity=[kind.EntityData(entity_type=t, entity_name=n) for t, n in names],
                ops=[
                    kind.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in limits.items()
                ],
            )
            for names, limits in entries
        ],
        validate_only=validate_only,
    )
    return sorted(
        (
            (
                sorted((each.entity_type, each.entity_name or "") for each in entry.entity),
                entry.error_code,
                entry.error_message,
            )
            for entry in broker.call(request, 1).entries
        ),
        key=str,
    )


def describe(
    broker: Side, *components: tuple[str, int, str | None], strict: bool = False
) -> tuple[int, str | None, Any]:
    kind = m.DescribeClientQuotasRequest
    request = kind(
        components=[
            kind.ComponentData(entity_type=t, match_type=match, match=name)
            for t, match, name in components
        ],
        strict=strict,
    )
    answer = broker.call(request, 1)
    entries = answer.entries and sorted(
        (
            (
                sorted((each.entity_type, each.entity_name or "") for each in entry.entity),
                sorted((value.key, value.value) for value in entry.values),
            )
            for entry in answer.entries
        ),
        key=str,
    )
    return answer.error_code, answer.error_message, entries


@pytest.fixture(scope="module")
def talkers(beside: Pair) -> tuple[Side, Side]:
    for talker in beside.sides:
        talker.make_topic(TOPIC)
    return beside.sides


@pytest.fixture
def both(talkers: tuple[Side, Side]) -> Iterator[tuple[Side, Side]]:
    yield talkers
    for talker in talkers:
        for names, values in describe(talker)[2]:
            entity = tuple((kind, name or None) for kind, name in names)
            alter(talker, (entity, dict.fromkeys(dict(values))))
        until_described(talker, [])


def until_described(
    talker: Side, expected: object, *components: tuple[str, int, str | None]
) -> None:
    """Kafka's broker hears of a change a moment after it is answered. components: look at nothing else."""
    give_up = time.monotonic() + 30
    while describe(talker, *components, strict=bool(components)) != (0, "", expected):
        assert time.monotonic() < give_up
        time.sleep(0.01)


ALTERATIONS: list[list[tuple[Names, Limits]]] = [
    [(U, {P: 1_000.0, R: 50.0})],
    [(U, {P: None, "nope": None})],
    [(U, {"nope": 1.0})],
    [(U, {P: 0.0})],
    [(U, {P: -1.0})],
    [(U, {P: float("nan")})],
    [(U, {P: float("inf")})],
    [(U, {P: 1.5})],
    [(U, {P: 1.0000001})],
    [(U, {P: 1e19})],
    [(U, {P: 2.0**63})],
    [(U, {R: 1.5})],
    [(U, {X: 10.0})],
    [(IP, {X: 3e9})],
    [(IP, {X: 10.0})],
    [(IP, {P: 10.0})],
    [((("ip", None),), {X: 20.0})],
    [((("ip", "::1"),), {X: 20.0})],
    [((*IP, *U), {X: 10.0})],
    [((), {P: 10.0})],
    [((("group", "g"),), {P: 10.0})],
    [((("user", ""),), {P: 10.0})],
    [((*U, ("user", "v")), {P: 10.0})],
    [(U, {P: 10.0}), (U, {P: 11.0})],
    [(C, {P: 10.0}), (U, {P: 0.0}), (UC, {P: 12.0})],
    [((("user", None), ("client-id", None)), {MUT: 5.5})],
    [((("user", "a/b <default> é"),), {P: 7.0})],
    [(U, {P: 2_000.0, "nope": 1.0})],
    [],
]
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False),
    ([], True),
    ([("user", EXACT, "u")], False),
    ([("user", EXACT, "u")], True),
    ([("user", DEFAULT, None)], False),
    ([("user", ANY, None)], False),
    ([("user", ANY, None)], True),
    ([("user", ANY, None), ("client-id", ANY, None)], False),
    ([("user", DEFAULT, None), ("client-id", DEFAULT, None)], True),
    ([("client-id", EXACT, "c")], True),
    ([("ip", ANY, None)], False),
    ([("ip", DEFAULT, None)], True),
    ([("ip", ANY, None), ("user", ANY, None)], False),
    ([("group", ANY, None)], False),
    ([("", ANY, None)], False),
    ([("user", EXACT, None)], False),
    ([("user", DEFAULT, "x")], False),
    ([("user", ANY, "x")], False),
    ([("user", 3, None)], False),
    ([("user", EXACT, "a"), ("user", EXACT, "b")], False),
    ([("user", EXACT, "nobody")], False),
]


def test_quotas_are_altered_and_described_as_kafka_does(both: tuple[Side, Side]) -> None:
    theirs, ours = both
    for entries in ALTERATIONS:
        assert alter(ours, *entries) == alter(theirs, *entries), entries
    until_described(theirs, describe(ours)[2])
    for components, strict in FILTERS:
        found = describe(ours, *components, strict=strict)
        assert found == describe(theirs, *components, strict=strict), components
    for talker in both:
        before = describe(talker)
        assert alter(talker, (U, {P: 5.0}), validate_only=True)[0][1] == ErrorCode.NONE
        assert describe(talker) == before


def until_obeyed(talker: Side, entity: Names, limits: Limits) -> None:
    """Set limits; Kafka's broker shows them a moment after the answer, and obeys them a moment after that.

    It hands one image of the metadata after the other to what shows it and then to what obeys it (MetadataLoader,
    BrokerMetadataPublisher), so once a later change is shown, the limits are obeyed.
    """
    changes: list[tuple[Names, Limits]] = [(entity, limits), (LATER, {P: 1.0}), (LATER, {P: None})]
    for names, values in changes:
        for _, error, message in alter(talker, (names, values)):
            assert error == ErrorCode.NONE, message
        left = sorted((key, value) for key, value in values.items() if value is not None)
        expected = [(list(names), left)] if left else []
        until_described(talker, expected, *((kind, EXACT, name) for kind, name in names))


def produce(connection: WireConnection, topic_id: bytes, size: int, acks: int = 1) -> int:
    batch = bytes(build_batch([Record(b"k", bytes(size), time.time_ns() // 1_000_000)]))
    partition = m.ProduceRequest.PartitionProduceData(records=batch)
    topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[partition])
    request = m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
    if acks == 0:
        connection.send(request, 13)
        connection.expect_nothing()
        return 0
    answer = connection.call(request, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    throttle_ms: int = answer.throttle_time_ms
    return throttle_ms


def bytes_throttle(talker: Side) -> list[tuple[int, float]]:
    """Throttle times of a producer that sends 3, then 2.5 windows' worth at once; and how long the next request took."""
    until_obeyed(talker, (("client-id", "fast"),), {P: 50_000.0})
    topic_id = talker.make_topic("made")
    measured = []
    with WireConnection(talker.port, "fast") as connection:
        for size in (300_000, 250_000, 0):
            start = time.monotonic()
            throttle_ms = produce(connection, topic_id, size)
            measured.append((throttle_ms, time.monotonic() - start))
    return measured


def test_throttle_times_of_bytes_are_kafkas(both: tuple[Side, Side]) -> None:
    """550 KB at 50 KB/s over 10 s: 1 s, less by the part of a window that has gone by (Rate.windowSize)."""
    for talker in both:
        first, second, third = bytes_throttle(talker)
        assert first[0] == 0, talker.port
        # the windows have gone on by as long as the machine needed between the two
        assert 0 <= 1_012 - second[0] <= WINDOWS_MS / 10, talker.port
        # the wait begins before the answer is here
        assert second[1] + third[1] >= second[0] / 1_000, talker.port
        # let through when a window has just begun, it waits for as long as any request may
        assert third[0] <= 1_100, talker.port


def consume(connection: WireConnection, topic_id: bytes) -> Any:
    kind = m.FetchRequest
    partition = kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=150_000)
    topic = kind.FetchTopic(topic_id=topic_id, partitions=[partition])
    return connection.call(
        kind(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]), 17
    )


def test_a_throttled_consumer_is_answered_without_records(both: tuple[Side, Side]) -> None:
    """And what it was not given does not count against it: after the wait it gets it."""
    for number, talker in enumerate(both):
        topic_id = talker.make_topic(f"consumed-{number}")
        with WireConnection(talker.port, "unlimited") as connection:
            for _ in range(4):
                produce(connection, topic_id, 140_000)
        until_obeyed(talker, (("client-id", "eager"),), {"consumer_byte_rate": 20_000.0})
        with WireConnection(talker.port, "eager") as connection:
            first = consume(connection, topic_id)
            assert first.throttle_time_ms == 0
            assert len(first.responses[0].partitions[0].records) > 100_000
            answer = consume(connection, topic_id)
            assert answer.throttle_time_ms > 0, talker.port
            waits = 0
            while answer.throttle_time_ms:
                assert (answer.responses, answer.session_id, answer.error_code) == ([], 0, 0)
                waits += 1
                assert waits <= 12, talker.port
                answer = consume(connection, topic_id)
            assert len(answer.responses[0].partitions[0].records) > 100_000


def test_time_is_throttled_by_a_window_at_most(both: tuple[Side, Side]) -> None:
    """A hundred-thousandth of a percent is 1 us in ten windows: no request is so quick that it waits for less than a whole window."""
    for talker in both:
        until_obeyed(talker, (("client-id", "busy"),), {R: 0.00001})
        start = time.monotonic()
        with WireConnection(talker.port, "busy") as connection:
            times = [
                connection.call(m.MetadataRequest(topics=None), 12).throttle_time_ms
                for _ in range(3)
            ]
        assert times == [1_000] * 3, talker.port
        assert time.monotonic() - start >= 2


def create(talker: Side, client_id: str, version: int, **topics: int) -> tuple[int, dict[str, int]]:
    kind = m.CreateTopicsRequest
    request = kind(
        topics=[
            kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics.items()
        ],
        timeout_ms=30_000,
    )
    with WireConnection(talker.port, client_id) as connection:
        answer = connection.call(request, version)
    assert all(topic.error_message is None for topic in answer.topics if topic.error_code == 89)
    return answer.throttle_time_ms, {topic.name: topic.error_code for topic in answer.topics}


def test_changes_of_topics_are_refused_or_slowed_down_as_kafka_does(
    both: tuple[Side, Side],
) -> None:
    """A bucket of 11 tokens; what is taken beyond it is waited for, one token a second (KIP-599)."""
    for talker in both:
        for client_id in ("strict", "lenient"):
            until_obeyed(talker, (("client-id", client_id),), {MUT: 1.0})
        throttle_ms, errors = create(talker, "strict", 7, s1=31)
        assert (throttle_ms, errors) == (0, {"s1": 0})
        throttle_ms, errors = create(talker, "strict", 7, s1=1, s2=1)
        assert errors == {"s1": ErrorCode.TOPIC_ALREADY_EXISTS, "s2": 89}
        assert 0 < 20_000 - throttle_ms < 10_000, talker.port
        throttle_ms, errors = create(talker, "lenient", 5, l1=31)
        assert errors == {"l1": 0}
        assert 0 <= 20_000 - throttle_ms < 10_000, talker.port


def test_connections_beyond_an_addresss_rate_are_closed_unserved(
    both: tuple[Side, Side],
) -> None:
    """At 2 a second 20 are served over the first ten windows; the next is held for up to a window and closed."""
    for talker in both:
        until_obeyed(talker, (("ip", "127.0.0.1"),), {X: 2.0})
        served = 0
        refused_after_s = None
        for _ in range(40):
            start = time.monotonic()
            with WireConnection(talker.port, "visitor") as connection:
                try:
                    connection.call(m.MetadataRequest(topics=[]), 12)
                except (OSError, AssertionError):
                    refused_after_s = time.monotonic() - start
                    break
            served += 1
        assert refused_after_s is not None, talker.port
        assert served >= 20, talker.port
        alter(talker, ((("ip", "127.0.0.1"),), {X: None}))


# --- clients

RECORD_BYTES = 10_000
RECORDS = 60
RATE = 50_000.0
FREE_S = 2.0
"""The windows that count as empty when a client comes, of the three here: what they allow goes at once."""


@pytest.fixture
def paced(rig: Rig) -> Broker:
    return rig.broker({"quota.window.num": "3"})


def send_with_librdkafka(bootstrap: str, client_id: str, records: int) -> None:
    config = {"bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 0}
    producer = confluent_kafka.Producer({**config, "batch.num.messages": 1})
    for _ in range(records):
        producer.produce("paced", bytes(RECORD_BYTES))
    assert producer.flush(120) == 0


def send_with_kafka_python(bootstrap: str, client_id: str, records: int) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=bootstrap, client_id=client_id, batch_size=RECORD_BYTES, linger_ms=0
    )
    for _ in range(records):
        producer.send("paced", bytes(RECORD_BYTES))
    producer.flush(120)
    producer.close()


def read_with_librdkafka(bootstrap: str, client_id: str, records: int) -> None:
    config = {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": "unused"}
    consumer = confluent_kafka.Consumer(
        {**config, "enable.auto.commit": False, "fetch.message.max.bytes": 5 * RECORD_BYTES}
    )
    consumer.assign([confluent_kafka.TopicPartition("paced", 0, 0)])
    count = 0
    give_up = time.monotonic() + 120
    while count < records:
        assert time.monotonic() < give_up
        count += len(consumer.consume(100, 1))
    consumer.close()


def read_with_kafka_python(bootstrap: str, client_id: str, records: int) -> None:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        max_partition_fetch_bytes=5 * RECORD_BYTES,
        enable_auto_commit=False,
    )
    consumer.assign([kafka_python.TopicPartition("paced", 0)])
    consumer.seek_to_beginning()
    count = 0
    give_up = time.monotonic() + 120
    while count < records:
        assert time.monotonic() < give_up
        count += sum(map(len, consumer.poll(1_000).values()))
    consumer.close()


@pytest.mark.parametrize(
    "send, read",
    [
        (send_with_librdkafka, read_with_librdkafka),
        (send_with_kafka_python, read_with_kafka_python),
    ],
    ids=["librdkafka", "kafka-python"],
)
def test_clients_slow_down_to_their_rate(
    paced: Broker,
    send: Callable[[str, str, int], None],
    read: Callable[[str, str, int], None],
) -> None:
    """12 s worth of records, of which 2 s may go at once: nobody is faster than the rate, over ten windows, or kept much longer."""
    ours = Side("ours", paced.port, str(paced.data))
    ours.make_topic("paced")
    names = send.__name__, read.__name__
    for client_id, key in zip(names, (P, "consumer_byte_rate"), strict=True):
        until_obeyed(ours, (("client-id", client_id),), {key: RATE})
    for client_id, work in zip(names, (send, read), strict=True):
        start = time.monotonic()
        work(paced.bootstrap, client_id, RECORDS)
        took_s = time.monotonic() - start
        due_s = RECORDS * RECORD_BYTES / RATE - FREE_S
        # the last request may still go while the one before it was within the rate
        assert took_s >= 0.85 * due_s, client_id
        assert took_s <= 4 * due_s, client_id  # for a busy machine: it is not to hang
    ours.close()
    for key in (P, "consumer_byte_rate"):
        assert paced.metric(f'logfleet_quota_throttles_total{{quota="{key}"}}') > 0
