"""A broker with one disk that takes writes only now and then: the rest goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from logfleet.log.directories.disk import SLOW_S, Disk
from logfleet.node.broker import Broker
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)

from broker_image.tests.unit.log.gated_files import GatedFiles
from broker_image.tests.unit.node.broker_rig import ask, config, create_topic
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


class Rig:
    """A broker with two log directories and the topics `stalled` and `calm`, one in each."""

    def __init__(self, broker: Broker, files: GatedFiles) -> None:
        self.broker = broker
        self.files = files
        self.port = broker.opened.listeners.all[0].port

    def disk_of(self, topic: str) -> Disk:
        partition = self.broker.rooms.partitions.get(topic, 0)
        assert partition is not None
        return partition.log.disk

    def stall(self, disk: Disk) -> None:
        """From now on no write of the disk comes to an end; one has been slow before."""
        self.files.path = disk.path
        disk.on_slow_write(2 * SLOW_S)
        self.files.writes.clear()

    async def produce(self, topic: str, value: bytes, acks: int = -1) -> int:
        """Base offset of the record."""
        batch = build_batch([Record(None, value, time.time_ns() // 1_000_000)])
        data = ProduceRequest.TopicProduceData(
            name=topic, partition_data=[ProduceRequest.PartitionProduceData(records=bytes(batch))]
        )
        request = ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data])
        row = (await ask(self.port, request, 9)).responses[0].partition_responses[0]
        assert row.error_code == 0, ErrorCode(row.error_code)
        return int(row.base_offset)

    async def end_of(self, topic: str) -> tuple[int, bytes]:
        """(high watermark, all records) as a consumer sees them."""
        wanted = FetchRequest.FetchTopic(
            topic=topic, partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0)]
        )
        wanted.partitions[0].partition_max_bytes = 1 << 20
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[wanted])
        row = (await ask(self.port, request, 11)).responses[0].partitions[0]
        return row.high_watermark, bytes(row.records or b"")

    async def commit(self, offset: int) -> int:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="calm",
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=offset
                )
            ],
        )
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        return int((await ask(self.port, request, 8)).topics[0].partitions[0].error_code)

    async def committed(self) -> int:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="calm", partition_indexes=[0])
        request = OffsetFetchRequest(group_id="g", topics=[topic])
        return int((await ask(self.port, request, 7)).topics[0].partitions[0].committed_offset)


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    files = GatedFiles()
    directories = f"{tmp_path}/one,{tmp_path}/two"
    given = config(tmp_path, log_dirs=directories, offsets_topic_num_partitions="1")
    async with Broker(given, files) as broker:
        rig = Rig(broker, files)
        for topic in ("stalled", "calm"):
            await create_topic(broker, topic)
        assert rig.disk_of("stalled") is not rig.disk_of("calm")
        yield rig
        files.writes.set()


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_is_on_other_disks_goes_on_and_nothing_is_acknowledged_before_it_is_written(
    rig: Rig, until: Until, acks: int
) -> None:
    await rig.produce("stalled", b"before")
    log = rig.broker.rooms.partitions.get("stalled", 0).log  # type: ignore[union-attr]
    rig.stall(rig.disk_of("stalled"))
    held = [
        asyncio.ensure_future(rig.produce("stalled", b"held %d" % number, acks))
        for number in range(3)
    ]
    await until(lambda: log.log_end_offset == 4)
    assert await rig.produce("calm", b"goes on") == 0
    end, seen = await rig.end_of("stalled")
    assert (end, b"held" in seen) == (1, False)
    assert not any(each.done() for each in held)
    rig.files.writes.set()
    assert sorted(await asyncio.gather(*held)) == [1, 2, 3]
    end, seen = await rig.end_of("stalled")
    assert (end, [b"held %d" % n in seen for n in range(3)]) == (4, [True] * 3)


async def test_what_waited_for_the_disk_comes_before_what_the_loop_writes_itself_again(
    rig: Rig, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logfleet.log.directories.disk.HOLD_S_MIN", 0.0)
    disk = rig.disk_of("stalled")
    log = rig.broker.rooms.partitions.get("stalled", 0).log  # type: ignore[union-attr]
    values: list[bytes] = []
    for _ in range(3):
        rig.stall(disk)
        held = []
        for _ in range(3):
            values.append(b"%d held" % len(values))
            held.append(asyncio.ensure_future(rig.produce("stalled", values[-1])))
            await until(lambda: log.log_end_offset == len(values))
        assert (disk.is_held_up, [each.done() for each in held]) == (True, [False] * 3)
        rig.files.writes.set()
        await asyncio.gather(*held)
        assert not disk.is_held_up
        values.append(b"%d at once" % len(values))
        await rig.produce("stalled", values[-1])
    end, seen = await rig.end_of("stalled")
    places = [seen.index(value) for value in values]
    assert (end, places) == (len(values), sorted(places))


async def test_a_topic_with_flush_messages_waits_for_the_disk_as_well(
    rig: Rig, until: Until
) -> None:
    partition = rig.broker.rooms.partitions.get("stalled", 0)
    assert partition is not None
    partition.log.config = _with_flush(partition.log.config, 2)
    rig.stall(rig.disk_of("stalled"))
    held = [asyncio.ensure_future(rig.produce("stalled", b"%d" % n)) for n in range(3)]
    await until(lambda: partition.log.log_end_offset == 3)
    assert (partition.high_watermark, partition.log.recovery_point) == (0, 0)
    rig.files.writes.set()
    await asyncio.gather(*held)
    assert partition.high_watermark == 3
    assert partition.log.recovery_point >= 2


async def test_commits_of_a_group_wait_and_are_not_seen_before_they_are_written(
    rig: Rig, until: Until
) -> None:
    find = FindCoordinatorRequest(key="g")

    async def is_found() -> bool:
        return bool((await ask(rig.port, find, 3)).error_code == 0)

    while not await is_found() or await rig.commit(1):  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(0)
    rig.stall(rig.disk_of("__consumer_offsets"))
    commit = asyncio.ensure_future(rig.commit(2))
    log = rig.broker.rooms.partitions.get("__consumer_offsets", 0).log  # type: ignore[union-attr]
    await until(lambda: log.disk.waiting(log.segments[-1].log_path))
    assert not commit.done()
    rig.files.writes.set()
    assert await commit == 0
    assert await rig.committed() == 2


def _with_flush(given: Any, messages: int) -> Any:
    return msgspec.structs.replace(given, flush_messages=messages)
