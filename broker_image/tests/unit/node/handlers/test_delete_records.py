import asyncio
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.node.handlers.delete_records import delete_records
from logfleet.records.record import Record, build_batch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DeleteRecordsRequest

from broker_image.tests.unit.node.partitions.replicas_rig import B, C, fetch, replicated

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
LAST_VERSION = 2


async def ask(
    host, *rows: tuple[str, int, int], timeout_ms: int = 0
) -> dict[tuple[str, int], tuple[int, int]]:
    """rows: topic, index, offset. Answers (error, low watermark) by partition."""
    topics = [
        DeleteRecordsRequest.DeleteRecordsTopic(
            name=name,
            partitions=[
                DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
            ],
        )
        for name, index, offset in rows
    ]
    answer = await delete_records(
        host, DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), host.context(LAST_VERSION)
    )
    encode(answer, LAST_VERSION)
    return {
        (topic.name, row.partition_index): (row.error_code, row.low_watermark)
        for topic in answer.topics
        for row in topic.partitions
    }


def fill(host, topic: str, **config: Any) -> Any:
    partition = host.host(topic, config=LogConfig(**config))
    partition.append(build_batch([Record(None, b"v", NOW) for _ in range(5)]), NOW)
    return partition


async def test_each_partition_is_answered_for_itself(host) -> None:
    kept = fill(host, "kept", cleanup_policy=frozenset({"compact"}))
    gone = fill(host, "gone")
    fill(host, "__consumer_offsets")
    host.know_topic("elsewhere", {0: 2})
    assert await ask(
        host,
        ("kept", 0, 1),
        ("gone", 0, 4),
        ("gone", 0, 3),
        ("elsewhere", 0, 1),
        ("elsewhere", 7, 1),
        ("nowhere", 0, 1),
        ("__consumer_offsets", 0, 1),
        ("__consumer_offsets", 7, 1),
    ) == {
        ("kept", 0): (ErrorCode.POLICY_VIOLATION, -1),
        ("gone", 0): (0, 3),
        ("elsewhere", 0): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ("elsewhere", 7): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("nowhere", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("__consumer_offsets", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        ("__consumer_offsets", 7): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }
    assert (kept.log.log_start_offset, gone.log.log_start_offset) == (0, 3)
    # durable when it was answered: what a killed broker would find
    assert host.log_starts_on_disk() == {gone.log.partition: 3}


async def test_what_is_not_committed_is_not_deleted(host) -> None:
    partition = host.host_held()
    for _ in range(3):
        partition.append(build_batch([Record(None, b"v", NOW)]), NOW)
    partition.ends.flushed(1)
    assert await ask(host, ("topic", 0, 2)) == {("topic", 0): (ErrorCode.OFFSET_OUT_OF_RANGE, -1)}
    assert await ask(host, ("topic", 0, -1)) == {("topic", 0): (0, 1)}
    assert partition.log.log_start_offset == 1


async def test_a_disk_that_fails_is_reported_to_client_and_broker(host, monkeypatch) -> None:
    failing = fill(host, "failing")
    fill(host, "kept", cleanup_policy=frozenset({"compact"}))

    async def fail(_: object) -> None:
        raise OSError(5, "bad sector")

    monkeypatch.setattr(host.checkpointer, "write_log_starts", fail)
    assert await ask(host, ("failing", 0, 1), ("kept", 0, 1)) == {
        ("failing", 0): (ErrorCode.KAFKA_STORAGE_ERROR, -1),
        ("kept", 0): (ErrorCode.POLICY_VIOLATION, -1),
    }
    assert [partition for partition, _ in host.failed] == [failing]
    host.log_dirs.dirs.clear()
    assert await ask(host, ("failing", 0, 1)) == {
        ("failing", 0): (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    }


# With followers


def replicate(host, *, alive: tuple[int, ...] = (1, 2, 3)) -> Any:
    """Five records that all replicas have."""
    partition = host.host("topic", replicas_state=replicated())
    partition.append(build_batch([Record(None, b"v", NOW) for _ in range(5)]), NOW)
    for member in (B, C):
        fetch(partition, member, 5)
    for broker_id in alive:
        host.know_active(broker_id)
    return partition


async def test_deletion_is_answered_when_all_live_replicas_have_learned_of_it(host, until) -> None:
    partition = replicate(host)
    asked = asyncio.ensure_future(ask(host, ("topic", 0, 4), timeout_ms=60_000))
    await until(lambda: len(partition.waiters))
    fetch(partition, B, 5, start=4)
    await asyncio.sleep(0)
    assert not asked.done()
    fetch(partition, C, 5, start=4)
    assert await asked == {("topic", 0): (0, 4)}


async def test_a_replica_that_is_away_is_not_waited_for(host) -> None:
    """It learns the log start when it is back, before it serves reads.

    Source: Partition.lowWatermarkIfLeader.
    """
    partition = replicate(host, alive=(1, 2))
    fetch(partition, B, 5, start=4)
    assert await ask(host, ("topic", 0, 4)) == {("topic", 0): (0, 4)}


async def test_replicas_are_waited_for_no_longer_than_asked(host) -> None:
    replicate(host)
    answer = await ask(host, ("topic", 0, 4), timeout_ms=1)
    assert answer == {("topic", 0): (ErrorCode.REQUEST_TIMED_OUT, -1)}


async def test_who_no_longer_leads_does_not_know_what_replicas_have(host, until) -> None:
    partition = replicate(host)
    asked = asyncio.ensure_future(ask(host, ("topic", 0, 4), timeout_ms=60_000))
    await until(lambda: len(partition.waiters))
    partition.end()
    assert await asked == {("topic", 0): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}
