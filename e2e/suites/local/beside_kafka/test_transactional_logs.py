"""Logs with transactions that Apache Kafka 4.4.0 wrote: ours are rebuilt as Kafka has them, and Kafka's tool reads ours."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from logfleet.client.cluster import Client
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import Trash
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.producers.states import ProducerStates
from logfleet.log.recovery.loader import LoadRequest
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire import messages as m

from e2e.harness.command_line import said
from e2e.harness.kafka import KafkaBroker, run_tool
from e2e.harness.wire_connection import WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "log.segment.bytes": "1048576",
    # so that a batch can be written that no coordinator knows of
    "transaction.partition.verification.enable": "false",
}
TOPIC = "t"
TRANSACTIONS, VALUE_BYTES = 30, 20_000
ENTRY_BYTES, SNAPSHOT_HEAD_BYTES = 46, 10


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of the partition, after Kafka has stopped in order."""
    directory = tmp_path_factory.mktemp("kafka") / "kafka"
    with KafkaBroker(directory, **CONFIG) as kafka:
        said(kafka, "topic", "create", TOPIC, "-p", "1")
        asyncio.run(write(kafka))
        leave_open(kafka)
        said(kafka, "produce", TOPIC, stdin=b"behind\n")
        kafka.stop()
        yield directory / "data" / f"{TOPIC}-0"


async def write(kafka: KafkaBroker) -> None:
    """Transactions of three producers among each other, of both protocols; half are aborted."""

    async def produce(number: int) -> None:
        dice = random.Random(number)
        async with Client(kafka.bootstrap) as client:
            if number == 1:  # the protocol before KIP-890
                client.finalized.learn(2**62, {"transaction.version": 1})
            async with TransactionalProducer(client, f"id-{number}") as producer:
                await producer.init()
                for _ in range(TRANSACTIONS):
                    await producer.begin()
                    for _ in range(dice.randrange(1, 5)):
                        await (await producer.send(TOPIC, dice.randbytes(VALUE_BYTES)))
                    await (producer.abort() if dice.random() < 0.5 else producer.commit())

    await asyncio.gather(*map(produce, range(3)))


def leave_open(kafka: KafkaBroker) -> None:
    with WireConnection(kafka.port) as connection:
        init = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        stamp = ProducerStamp(connection.call(init, 4).producer_id, 0, 0, transactional=True)
        batch = build_batch([Record(None, b"open", 0)], producer=stamp)
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
        request = m.ProduceRequest(
            transactional_id="nobody", acks=-1, timeout_ms=10_000, topic_data=[topic]
        )
        answer = connection.call(request, 11)
        assert answer.responses[0].partition_responses[0].error_code == 0


def copied(written: Path, directory: Path, *, without: tuple[str, ...] = ()) -> Path:
    (directory / "data").mkdir()
    return shutil.copytree(
        written,
        directory / "data" / written.name,
        ignore=shutil.ignore_patterns(*(f"*{suffix}" for suffix in without)),
    )


def opened(directory: Path, *, clean: bool) -> PartitionLog:
    files = OpenFiles(PosixFiles())
    request = LoadRequest(
        directory=str(directory),
        config=LogConfig(),
        clean=clean,
        recovery_point=0,
        log_start_offset=0,
        now_ms=0,
        gaps_are_damage=False,
    )
    return PartitionLog(TopicPartition(TOPIC, 0), files, Trash(files), request)


def close(log: PartitionLog) -> None:
    job = log.close()
    job.run(log.files)
    log.complete_flush(job)


def indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.txnindex")}


def producers(directory: Path) -> list[bytes]:
    """The entries of the newest snapshot."""
    newest = max(directory.glob("*.snapshot"))
    body = newest.read_bytes()[SNAPSHOT_HEAD_BYTES:]
    ProducerStates.from_snapshot(newest.read_bytes())
    return sorted(body[at : at + ENTRY_BYTES] for at in range(0, len(body), ENTRY_BYTES))


def test_a_rebuild_gives_the_indexes_and_producers_that_kafka_wrote(
    written: Path, tmp_path: Path
) -> None:
    assert len(indexes(written)) > 2
    directory = copied(written, tmp_path, without=(".txnindex", ".snapshot", ".index"))
    close(opened(directory, clean=False))
    assert indexes(directory) == indexes(written)
    assert producers(directory) == producers(written)


def test_the_state_that_kafka_left_is_taken_over(written: Path, tmp_path: Path) -> None:
    log = opened(copied(written, tmp_path), clean=True)
    assert log.recovered_bytes == 0
    end = log.log_end_offset
    (opened_by,) = log.producers.states.open_transactions()
    assert log.last_stable_offset(end) == opened_by[1].transaction_first_offset == end - 2
    (tmp_path / "again").mkdir()
    rebuilt = opened(copied(written, tmp_path / "again", without=(".txnindex",)), clean=False)
    assert log.aborted(0, end) == rebuilt.aborted(0, end)
    assert len(log.aborted(0, end)) > TRANSACTIONS


def test_kafka_reads_what_ours_are(written: Path, tmp_path: Path) -> None:
    log = opened(copied(written, tmp_path, without=(".txnindex", ".snapshot")), clean=False)
    close(log)
    for path in sorted(Path(log.directory).glob("*.txnindex")):
        lines = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", str(path)])
        entries = [line for line in lines.splitlines() if "producerId" in line]
        assert len(entries) == path.stat().st_size // 34
    newest = max(Path(log.directory).glob("*.snapshot"))
    lines = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", str(newest)])
    assert lines.count("producerId") == len(log.producers.states)
    assert f"currentTxnFirstOffset: OptionalLong[{log.log_end_offset - 2}]" in lines
