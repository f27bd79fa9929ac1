"""Our files on disk against Apache Kafka's own eyes: its dump tool, and a Kafka broker on a partition that we wrote."""

import re
import shutil
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from logfleet.io.files import PosixFiles
from logfleet.log import names
from logfleet.log.checkpoints.files import parse_properties
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.validation import Appended
from logfleet.records.batch import iterate_headers
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch
from logfleet.wire import uuids

from broker_image.tests.unit.log.searching import by_time
from e2e.harness.kafka import KafkaBroker, dump_log, run_tool

BATCHES = 300
PER_BATCH = 3
RECORDS = BATCHES * PER_BATCH
CONFIG = LogConfig(segment_bytes=15_000, index_interval_bytes=1000)
NOW = time.time_ns() // 1_000_000 - RECORDS


def value_of(offset: int) -> bytes:
    return b"value %d " % offset * 10


def fill(log: PartitionLog) -> None:
    """Every codec, two producers, headers, an epoch that changes; record i has offset i and timestamp NOW + i."""
    for number in range(BATCHES):
        first = number * PER_BATCH
        records = [
            Record(b"key %d" % o, value_of(o), NOW + o, (("header", b"%d" % o),))
            for o in range(first, first + PER_BATCH)
        ]
        stamp = ProducerStamp(1000 + number % 2, 0, number // 2 * PER_BATCH)
        batch = build_batch(records, codec=Codec(number % len(Codec)), producer=stamp)
        result = log.append_as_leader(batch, LeaderEpoch(number // 100), NOW + RECORDS)
        assert result == Appended(first, first + PER_BATCH - 1, -1)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that holds the partition flights-0, closed."""
    path = tmp_path_factory.mktemp("logs")
    log_dir = LogDir(OpenFiles(PosixFiles()), str(path), "AAAAAAAAAAAAAAAAAAAAAQ", 1)
    assert list(log_dir.load(lambda _topic: CONFIG, NOW)) == []
    partition = names.TopicPartition("flights", 0)
    fill(log_dir.create(partition, uuids.to_text(uuid.uuid4().bytes), CONFIG, NOW))
    log_dir.close({partition: RECORDS})
    return path / "flights-0"


def test_the_dump_tool_reads_every_record(written: Path) -> None:
    segments = sorted(written.glob("*.log"))
    assert len(segments) > 2
    output = dump_log(segments, "--print-data-log", "--deep-iteration")
    records = re.findall(
        r"^\| offset: (\d+) CreateTime: (\d+) .*headerKeys: \[header\] key: (.*) payload: (.*)$",
        output,
        re.MULTILINE,
    )
    assert records == [
        (str(o), str(NOW + o), f"key {o}", value_of(o).decode()) for o in range(RECORDS)
    ]
    batches = re.findall(r"^baseOffset: .*$", output, re.MULTILINE)
    assert len(batches) == BATCHES
    assert all("isvalid: true" in batch for batch in batches)
    assert {re.search(r"compresscodec: (\w+)", batch)[1] for batch in batches} == {  # type: ignore[index]
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    }


def test_the_dump_tool_finds_the_indexes_sound(written: Path) -> None:
    for suffix in ("index", "timeindex"):
        indexes = sorted(written.glob(f"*.{suffix}"))
        assert any(index.stat().st_size for index in indexes)
        dump_log(indexes, "--verify-index-only")
        assert "offset: " in dump_log(indexes)


def test_the_dump_tool_reads_producer_snapshots(written: Path) -> None:
    newest = max(written.glob("*.snapshot"))
    output = dump_log([newest])
    found = re.findall(r"producerId: (\d+) .*?lastSequence: (\d+)", output)
    assert sorted(found) == [("1000", "449"), ("1001", "449")]


def test_a_kafka_broker_serves_a_partition_that_we_wrote(written: Path, tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        run_tool(
            "org.apache.kafka.tools.TopicCommand",
            ["--bootstrap-server", kafka.bootstrap, "--create", "--topic", "flights"],
        )
        kafka.stop()
        theirs = tmp_path / "kafka/data/flights-0"
        metadata = (theirs / "partition.metadata").read_text()
        shutil.rmtree(theirs)
        shutil.copytree(written, theirs)
        (theirs / "partition.metadata").write_text(metadata)
        kafka.start()
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader"})
        consumer.assign([TopicPartition("flights", 0, 0)])
        found: list[tuple[object, ...]] = []
        end = time.monotonic() + 60
        while len(found) < RECORDS and time.monotonic() < end:
            for message in consumer.consume(RECORDS, timeout=1.0):
                assert message.error() is None
                stamp = message.timestamp()[1]
                found.append((message.offset(), stamp, message.key(), message.value()))
        (later,) = consumer.offsets_for_times([TopicPartition("flights", 0, NOW + 500)], 30)
        consumer.close()
        assert found == [(o, NOW + o, b"key %d" % o, value_of(o)) for o in range(RECORDS)]
        assert later.offset == 500
        log = (tmp_path / "kafka/kafka.log").read_text()
        assert not re.search(r"(Corruption|corrupt|recover(ing|y) .*flights|rebuil)", log), log[
            -3000:
        ]


def test_a_partition_that_a_kafka_broker_wrote_is_read_here(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        for offset in range(RECORDS):
            producer.produce(
                "flights", value_of(offset), b"key %d" % offset, 0, timestamp=NOW + offset
            )
        assert producer.flush(30) == 0
        kafka.stop()
        data = tmp_path / "kafka/data"
        identity = parse_properties((data / names.META_PROPERTIES).read_bytes())
        open_files = OpenFiles(PosixFiles())
        log_dir = LogDir(open_files, str(data), identity["cluster.id"], int(identity["node.id"]))
        logs = {str(log.partition): log for log in log_dir.load(lambda _topic: LogConfig(), NOW)}
        assert log_dir.was_clean
        assert [log.notes for log in logs.values() if log.notes] == []
        log = logs["flights-0"]
        assert log.log_end_offset == RECORDS
        found: list[tuple[object, ...]] = []
        while isinstance(piece := log.read(len(found), 1 << 20), FileSlice):
            content = piece.read()
            for position, _ in iterate_headers(content):
                found += [(r.offset, r.timestamp, r.value) for r in read_records(content, position)]
        assert found == [(o, NOW + o, value_of(o)) for o in range(RECORDS)]
        later = by_time(log, NOW + 500)
        assert later is not None
        assert later.offset == 500
        assert len(log.producers.states) == 1, "restored from Kafka's snapshot"
        log_dir.close({log.partition: RECORDS})
        kafka.start()  # and back again
        kafka.stop()
        assert "orrupt" not in (tmp_path / "kafka/kafka.log").read_text()
