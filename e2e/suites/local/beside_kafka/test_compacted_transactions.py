"""Compacted logs with transactions: Apache Kafka 4.4.0 reads what ours left, and ours what its cleaner left."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from logfleet.client.cluster import Client
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import Trash
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.loader import LoadRequest
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.aborted import AbortedTransaction, visible_batches
from logfleet.records.record import read_records

from broker_image.tests.unit.log.compaction.compaction_rig import compact, flushed
from e2e.harness.command_line import said, until
from e2e.harness.kafka import KafkaBroker, dump_log
from e2e.load.transactions.readers import read_committed

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "100",
    "log.cleanup.policy": "compact",
}
OURS, THEIRS = "cleaned-by-us", "cleaned-by-kafka"
NEVER, AT_ONCE = "min.compaction.lag.ms=9000000000000", "min.cleanable.dirty.ratio=0.001"
PRODUCERS, TRANSACTIONS, KEYS, VALUE_BYTES = 3, 30, 6, 20_000
LATER_MS = 4_000_000_000_000
"""A time behind all delete horizons."""
Values = dict[str, str]
"""The last committed value of each key, as "key=value"."""


class Written:
    """directory: of Kafka's data. values: by topic."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.kafka = kafka
        self.directory = kafka.directory / "data"
        self.values: dict[str, Values] = {OURS: {}, THEIRS: {}}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """What Kafka left after its cleaner had come twice over one of two topics; it has stopped."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "kafka", **CONFIG) as kafka:
        found = Written(kafka)
        said(kafka, "topic", "create", OURS, "-p", "1", "-c", NEVER)
        theirs = ("-c", AT_ONCE, "-c", "delete.retention.ms=1")
        said(kafka, "topic", "create", THEIRS, "-p", "1", *theirs)
        for seed in range(2):
            before = cleaned_end(found)  # the cleaner may come while this writes, and not again
            asyncio.run(write(found, seed))
            until(partial(is_cleaned_beyond, found, before))
        kafka.stop()
        yield found


async def write(written: Written, seed: int) -> None:
    """Transactions of producers among each other, of both protocols; half are aborted."""

    async def produce(number: int) -> None:
        dice = random.Random(10 * seed + number)
        async with Client(written.kafka.bootstrap) as client:
            if number == 1:  # the protocol before KIP-890
                client.finalized.learn(2**62, {"transaction.version": 1})
            async with TransactionalProducer(client, f"id-{number}") as producer:
                await producer.init()
                for _ in range(TRANSACTIONS):
                    await producer.begin()
                    sent = await send(producer, number, dice)
                    if dice.random() < 0.5:
                        await producer.abort()
                        continue
                    await producer.commit()
                    for values in written.values.values():
                        values.update(sent)

    await asyncio.gather(*map(produce, range(PRODUCERS)))


async def send(producer: TransactionalProducer, number: int, dice: random.Random) -> Values:
    sent: Values = {}
    for _ in range(dice.randrange(1, 5)):
        key = f"{number}-{dice.randrange(KEYS)}"
        value = f"{key}={dice.randbytes(VALUE_BYTES // 2).hex()}"
        sent[key] = value
        for topic in (OURS, THEIRS):
            await (await producer.send(topic, value.encode(), key=key.encode()))
    return sent


def cleaned_end(written: Written) -> int:
    """The end of what Kafka's cleaner has done; 0 before the first time."""
    path = written.directory / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(THEIRS)), 0)


def is_cleaned_beyond(written: Written, offset: int) -> bool:
    return cleaned_end(written) > offset


def opened(directory: Path, *, clean: bool = True) -> PartitionLog:
    files = OpenFiles(PosixFiles())
    request = LoadRequest(
        directory=str(directory),
        config=LogConfig(
            cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20, file_delete_delay_ms=0
        ),
        clean=clean,
        recovery_point=0,
        log_start_offset=0,
        now_ms=0,
        gaps_are_damage=False,
    )
    return PartitionLog(TopicPartition(OURS, 0), files, Trash(files), request)


def compacted(log: PartitionLog, now_ms: int) -> None:
    log.ends.first_dirty_offset = 0
    assert compact(flushed(log, log.files), log.files, now_ms) is not None


def close(log: PartitionLog) -> None:
    job = log.close()
    job.run(log.files)
    log.complete_flush(job)


def committed(log: PartitionLog) -> Values:
    """As a reader of committed records sees it."""
    values: Values = {}
    offset, end = 0, log.last_stable_offset(log.log_end_offset)
    while isinstance(piece := log.read(offset, 1 << 20, end), FileSlice):
        content = piece.read()
        entries = log.aborted(offset, piece.end_offset)
        aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in entries]
        for position, _ in visible_batches(content, aborted):
            for record in read_records(content, position):
                key, value = record.key or b"", record.value or b""
                values[key.decode()] = value.decode()
        offset = piece.end_offset
    return values


def test_ours_reads_what_kafkas_cleaner_left_and_compacts_it_again(
    written: Written, tmp_path: Path
) -> None:
    expected = written.values[THEIRS]
    directory = tmp_path / "data" / f"{THEIRS}-0"
    shutil.copytree(written.directory / directory.name, directory)
    log = opened(directory)
    end = log.log_end_offset
    assert log.last_stable_offset(end) == end
    assert committed(log) == expected
    close(log)
    for name in (".txnindex", ".snapshot", ".index"):
        for path in directory.glob(f"*{name}"):
            path.unlink()
    log = opened(directory, clean=False)
    assert log.last_stable_offset(end) == log.log_end_offset == end
    assert committed(log) == expected
    for now_ms in (LATER_MS, 2 * LATER_MS):
        compacted(log, now_ms)
        assert committed(log) == expected


def test_kafka_reads_what_ours_left_and_goes_on_in_it(written: Written) -> None:
    directory = written.directory / f"{OURS}-0"
    log = opened(directory)
    before = log.size
    assert committed(log) == written.values[OURS]
    compacted(log, LATER_MS)
    assert len(log.aborted(0, log.log_end_offset)) > 0
    compacted(log, 2 * LATER_MS)
    assert log.size < before / 3
    assert committed(log) == written.values[OURS]
    close(log)
    dump_log(sorted(directory.glob("*.log")))
    dump_log(sorted(directory.glob("*.index")))
    written.kafka.start()
    for seed in (None, 2):
        if seed is not None:
            asyncio.run(write(written, seed))
        found = read_committed(written.kafka.bootstrap, OURS, 1)[0].values()
        latest = {value.partition("=")[0]: value for value in found}
        assert latest == written.values[OURS]
