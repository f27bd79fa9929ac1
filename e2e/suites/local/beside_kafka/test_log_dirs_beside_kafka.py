"""Moves between log directories beside a running Apache Kafka 4.4.0: the same answers, and the log ends in the same directory (KIP-113)."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m

from e2e.compare.brokers import Pair
from e2e.compare.side import Side
from e2e.harness.command_line import until
from e2e.harness.wire_connection import error_codes

pytestmark = [pytest.mark.xdist_group("log-dirs-beside-kafka"), pytest.mark.timeout(600)]
PRODUCTS = ("kafka", "ours")
RECORDS = 100

Row = tuple[str, str, int]
"""Where a partition is to be: a log directory, or its number; topic, partition."""


class Both:
    def __init__(self, both: Pair) -> None:
        self.log_dirs = both.log_dirs
        self.sides = both.sides
        self._talkers = dict(zip(PRODUCTS, both.sides, strict=True))

    def alter(self, product: str, version: int, rows: Sequence[Row]) -> dict[tuple[str, int], int]:
        """The error code of each partition."""
        kind = m.AlterReplicaLogDirsRequest
        dirs = [
            kind.AlterReplicaLogDir(
                path=str(self.log_dirs[product][int(where)]) if where.isdigit() else where,
                topics=[kind.AlterReplicaLogDirTopic(name=topic, partitions=[index])],
            )
            for where, topic, index in rows
        ]
        answer = self._talkers[product].call(kind(dirs=dirs), version)
        return {
            (result.topic_name, row.partition_index): row.error_code
            for result in answer.results
            for row in result.partitions
        }

    def same(self, *rows: Row) -> None:
        for version in (1, 2):
            theirs, own = (self.alter(product, version, rows) for product in PRODUCTS)
            assert own == theirs, (rows, version)

    def is_at(self, product: str, number: int, name: str) -> bool:
        """Whether the partition's log is in that directory and nothing else of it in the other."""
        paths: list[Path] = self.log_dirs[product]
        found = [sorted(each.name for each in path.glob(f"{name}*")) for path in paths]
        logs = [[each for each in names if not each.endswith("-delete")] for names in found]
        return logs[number] == [name] and logs[1 - number] == []


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    config = {"log.segment.delete.delay.ms": "100"}
    directory = tmp_path_factory.mktemp("both")
    with Pair(directory, config, log_dirs=2) as pair:
        for talker in pair.sides:
            send(talker, talker.make_topic("t", 1))
            send(talker, talker.make_topic("big", 3))
        yield Both(pair)


def send(talker: Side, topic_id: bytes) -> None:
    kind = m.ProduceRequest
    now = time.time_ns() // 1_000_000
    batch = bytes(build_batch([Record(b"k", bytes(100), now)] * RECORDS))
    topic = kind.TopicProduceData(
        topic_id=topic_id, partition_data=[kind.PartitionProduceData(index=0, records=batch)]
    )
    answer = talker.call(kind(acks=-1, timeout_ms=30_000, topic_data=[topic]), 13)
    assert not any(error_codes(answer)), answer


def test_what_cannot_be_is_refused_as_kafka_does(both: Both) -> None:
    both.same(("/nowhere", "t", 0))
    both.same(("relative", "t", 0), ("", "t", 1))
    both.same(("0", "nowhere", 0), ("/nowhere", "nowhere", 1))
    both.same(("0", "t", 9), ("1", "t", -1))
    both.same(("0", "n" * 209, 0), ("0", "n" * 220, 0), ("/nowhere", "n" * 249, 0))
    both.same(("/nowhere", "t", 0), ("0", "nowhere", 0), ("0", "", 0))
    both.same()


def test_a_log_moves_there_and_back_as_with_kafka(both: Both) -> None:
    for number in (1, 0, 1):
        both.same((str(number), "t", 0))
        for product in PRODUCTS:
            until(partial(both.is_at, product, number, "t-0"))
    both.same(("1", "t", 0))  # where it is


def located(answer: Any) -> dict[str, Any]:
    """The answer without the names of the directories, and whatever lies in any of them as if it lay in one."""
    sizes = {
        (topic.name, row.partition_index): row.partition_size
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
    }
    heads = [
        (result.error_code, 0 < result.usable_bytes <= result.total_bytes, result.is_cordoned)
        for result in answer.results
    ]
    return {"sizes": sizes, "heads": heads, "error": answer.error_code}


@pytest.mark.parametrize(
    "wanted", [None, {}, {"t": [0]}, {"t": [0, 9], "big": [2, 2], "nowhere": [0]}, {"t": []}]
)
def test_log_directories_are_described_as_kafka_does(both: Both, wanted) -> None:
    kind = m.DescribeLogDirsRequest
    topics = None
    if wanted is not None:
        topics = [
            kind.DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in wanted.items()
        ]
    for version in range(1, 6):
        theirs, own = (located(side.get(kind(topics=topics), version)) for side in both.sides)
        assert own == theirs, version
