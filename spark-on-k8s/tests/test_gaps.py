"""Offsets without a record, as Apache Kafka itself and a broker of ours leave them: both sources pass over them, also at the end of a range."""

import time

import pytest
from confluent_kafka import Producer
from logfleet.client.offsets import TopicPartition
from logfleet_spark.cluster import Cluster
from logfleet_spark.offsets import OffsetRange

from e2e.harness.kafka import KafkaBroker
from e2e.harness.spark_topics import SOURCES, NumberedTopic, drained, rows, wait_until, written


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    quick = {"log_cleaner_backoff_ms": "100", "log_cleaner_min_cleanable_ratio": "0.001"}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), **quick) as broker:
        yield broker


def offsets(frame):
    return [offset for _, offset, _, _ in rows(frame)]


@pytest.fixture(scope="module", params=["kafka", "broker"])
def either(request):
    """Apache Kafka, and a broker of ours."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def transactional(either):
    """Records 0 to 4, a commit marker, 6 to 8, an abort marker, 10, a commit marker, 12, which stays open."""
    topic = NumberedTopic(either.bootstrap, partitions=1)
    producer = Producer({"bootstrap.servers": either.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(30)
    for count, end in ((5, "commit"), (3, "abort"), (1, "commit")):
        producer.begin_transaction()
        for n in range(count):
            producer.produce(topic.name, f"v{n}", f"k{n}")
        producer.flush(30)
        getattr(producer, f"{end}_transaction")(30)
    to_stay_open = {"transactional.id": f"{topic.name}-open", "transaction.timeout.ms": 900_000}
    another = Producer({"bootstrap.servers": either.bootstrap, **to_stay_open})
    another.init_transactions(30)
    another.begin_transaction()
    another.produce(topic.name, "v", "k")
    another.flush(30)
    assert topic.bounds(0) == (0, 13)
    yield topic
    another.abort_transaction(30)


@pytest.mark.parametrize("source", SOURCES)
def test_markers_of_transactions_are_no_rows(spark, transactional, tmp_path, source):
    want = [*range(5), *range(6, 9), 10, 12]
    assert offsets(transactional.batch(spark, source)) == want
    stream = transactional.stream(spark, source, maxOffsetsPerTrigger="6")
    assert drained(stream, tmp_path) == [5, 4, 1]
    assert [offset for _, offset, _, _ in written(spark, tmp_path)] == want


COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.mark.parametrize("source", SOURCES)
def test_a_reader_of_committed_records_passes_over_what_was_aborted(
    spark, transactional, tmp_path, source
):
    want = [*range(5), 10]
    assert offsets(transactional.batch(spark, source, **COMMITTED)) == want
    # tasks that have nothing but a part of what was aborted, or begin or end with its marker
    assert (
        offsets(transactional.batch(spark, source, **COMMITTED, maxRecordsPerPartition="2")) == want
    )
    stream = transactional.stream(spark, source, **COMMITTED, maxOffsetsPerTrigger="7")
    assert drained(stream, tmp_path) == [5, 1]
    assert [offset for _, offset, _, _ in written(spark, tmp_path)] == want


def test_a_reader_of_committed_records_waits_for_open_transactions(spark, kafka, tmp_path):
    topic = NumberedTopic(kafka.bootstrap, partitions=1)
    topic.produce(range(2), spread=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, "v2", "k2")
    producer.flush(30)
    # read before with another level: the checkpoint is further than what is stable
    assert drained(topic.stream(spark), tmp_path) == [3]
    assert drained(topic.stream(spark, **COMMITTED), tmp_path) == []
    assert drained(topic.stream(spark, **COMMITTED), tmp_path / "new") == [2]
    assert offsets(topic.batch(spark, **COMMITTED)) == [0, 1]
    producer.commit_transaction(30)
    assert offsets(topic.batch(spark, **COMMITTED)) == [0, 1, 2]
    assert drained(topic.stream(spark, **COMMITTED), tmp_path / "new") == [1]


KEYS, BATCH_RECORDS = 3, 10


@pytest.fixture(scope="module")
def compacted(kafka):
    """Of 300 records the last of each key is left, and what the active segment holds, which the cleaner lets be."""
    # from the start: Kafka tells a log of a change some time after it has answered
    configs = {"cleanup.policy": "compact", "segment.ms": "1"}
    topic = NumberedTopic(kafka.bootstrap, partitions=1, configs=configs)
    now_ms = int(time.time() * 1000)
    # all batches full, however slow the machine is: each is a segment, as its records are more than segment.ms younger
    whole_batches = {"batch.num.messages": BATCH_RECORDS, "linger.ms": 60_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **whole_batches})
    for n in range(300):
        producer.produce(topic.name, f"v{n}", f"k{n % KEYS}", timestamp=now_ms + n)
    assert producer.flush(30) == 0
    whole = OffsetRange(TopicPartition(topic.name, 0), 0, 300)
    with Cluster(kafka.bootstrap) as cluster:
        # the fixed point: a pass that came later would come between the reads of ours and of theirs
        wait_until(lambda: sum(map(len, cluster.read([whole]))) == KEYS + BATCH_RECORDS)
    return topic


@pytest.mark.parametrize(
    "options", [{}, {"endingOffsets": '{"TOPIC": {"0": 200}}', "startingOffsets": "earliest"}]
)
def test_what_compaction_removed_is_passed_over(spark, compacted, options):
    ours, theirs = (rows(compacted.batch(spark, source, **options)) for source in SOURCES)
    assert ours == theirs
    assert len(ours) < 100
    assert options or {value for *_, value in ours} >= {b"v297", b"v298", b"v299"}
