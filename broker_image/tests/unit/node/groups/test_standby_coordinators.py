"""What a follower has read of the offsets topic equals what a new leader would read."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.offsets import ZERO_UUID
from logfleet.groups.records import OFFSETS_TOPIC, GroupRecord, OffsetRecord
from logfleet.groups.registry import record_types
from logfleet.log.partition_log import PartitionLog
from logfleet.node.coordinators import standby
from logfleet.node.coordinators.loader import CoordinatorLoader
from logfleet.node.coordinators.standby import StandbyCoordinators
from logfleet.node.groups.group_shard import group_kind
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

from broker_image.tests.unit.log.log_rig import truncate
from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition
from broker_image.tests.unit.node.groups.groups_rig import OFFSETS_ID, open_log

GroupRead = CoordinatorLoader[GroupRecord, GroupCoordinator]
GROUPS, TOPICS = ["g", "h"], ["t", "u"]
LOOP_LAG_S_MAX = 0.05
"""Far below what reading the log at once takes, above what a busy machine does to any loop."""


def offset_of(group: str, topic: str, partition: int, offset: int | None) -> OffsetRecord:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    value = None if offset is None else OffsetCommitValue(offset=offset, topic_id=ZERO_UUID)
    return OffsetRecord(key, value)


def group_of(group: str, generation: int | None) -> GroupMetadataRecord:
    key = GroupMetadataKey(group=group)
    value = None
    if generation is not None:
        value = GroupMetadataValue(protocol_type="consumer", generation=generation)
    return GroupMetadataRecord(key, value)


def write(log: PartitionLog, *records: GroupRecord, producer_id: int = -1) -> None:
    """One batch; with a producer id of a transaction."""
    batch = build_batch(
        [Record(key, value, 1) for key, value in map(record_types().encode, records)],
        producer=ProducerStamp(producer_id, 0, 0, True) if producer_id >= 0 else None,
    )
    append(log, batch)


def append(log: PartitionLog, batch: bytearray) -> None:
    """As a follower takes it from its leader."""
    batch[:8] = log.log_end_offset.to_bytes(8, "big")
    log.append_as_follower(memoryview(batch), LeaderEpoch(0), 1)


def end_transaction(log: PartitionLog, producer_id: int, kind: bytes) -> None:
    producer = ProducerStamp(producer_id, 0, -1, True)
    value = b"\0\0\0\0\0\0"
    append(log, build_batch([Record(kind, value, 1)], producer=producer, control=True))


def known(read: GroupRead) -> object:
    """Everything that the log says."""
    table = read.coordinator._table
    return (
        read.offset,
        read.coordinator.of(CLASSIC)._table.stored,
        table.offsets,
        sorted(table.groups),
        table.staged._groups,
    )


async def run_in_thread(work):
    return await asyncio.to_thread(work)


async def pause_if_due() -> None:
    await asyncio.sleep(0)


async def read_cold(log: PartitionLog, end_offset: int) -> GroupRead:
    read = CoordinatorLoader(group_kind(GroupConfig()), log)
    await read.read_on(
        lambda: end_offset,
        is_over=lambda: False,
        run_in_thread=run_in_thread,
        pause_if_due=pause_if_due,
    )
    return read


class Rig:
    """A partition that is followed; `commit` moves its high watermark."""

    def __init__(self, path: str) -> None:
        self.log = open_log(path)
        self.standby = StandbyCoordinators(
            group_kind(GroupConfig()),
            run_in_thread=run_in_thread,
            is_hosted=lambda *_: self.is_hosted,
        )
        self.is_hosted = True
        self.follow()

    def follow(self) -> None:
        replica = Replica(OFFSETS_TOPIC, OFFSETS_ID, 0, self.log)
        self.partition = FollowerPartition(replica, 2, LeaderEpoch(0))
        self.standby.followed(self.partition)

    def commit(self, end_offset: int | None = None) -> None:
        self.partition.appended(1)
        self.partition.advance_high_watermark(
            self.log.log_end_offset if end_offset is None else end_offset
        )

    def cut(self, offset: int) -> None:
        truncate(self.log, offset)
        self.standby.truncated(self.log, self.log.log_end_offset)

    @property
    def state(self) -> GroupRead:
        (state,) = self.standby.states()
        return state

    @asynccontextmanager
    async def running(self):
        task = asyncio.ensure_future(self.standby.run())
        yield
        task.cancel()
        await asyncio.wait([task])

    async def until_read(self, offset: int) -> None:
        async with asyncio.timeout(20):
            while self.state.offset < offset:  # noqa: ASYNC110  what is waited for has no event
                await asyncio.sleep(0.001)


@pytest.fixture
def rig(tmp_path, monkeypatch) -> Rig:
    monkeypatch.setattr(standby, "ROUND_S", 0)
    return Rig(str(tmp_path))


@pytest.mark.asyncio
async def test_a_follower_reads_what_is_committed_and_no_more(rig):
    write(rig.log, offset_of("g", "t", 0, 5))
    rig.commit()
    write(rig.log, offset_of("g", "t", 0, 6))
    async with rig.running():
        await rig.until_read(1)
        assert known(rig.state) == known(await read_cold(rig.log, 1))
        rig.commit()
        await rig.until_read(2)
        assert known(rig.state) == known(await read_cold(rig.log, 2))


@pytest.mark.asyncio
async def test_what_was_read_is_kept_under_the_next_leader_and_as_the_leader(rig):
    write(rig.log, offset_of("g", "t", 0, 5))
    rig.commit()
    async with rig.running():
        await rig.until_read(1)
        state = rig.state
        rig.partition.end()
        rig.follow()
        assert rig.state is state
        assert rig.standby.take(LaggingPartition(rig.log)) is state
        assert list(rig.standby.states()) == []
        assert rig.standby.take(LaggingPartition(rig.log)) is None


@pytest.mark.asyncio
async def test_a_log_that_is_cut_below_what_was_read_is_read_again(rig):
    """As after an unclean election: what the removed records replaced is not kept."""
    write(rig.log, offset_of("g", "t", 0, 5))
    write(rig.log, offset_of("g", "t", 0, 6))
    rig.commit()
    async with rig.running():
        await rig.until_read(2)
        rig.cut(1)
        write(rig.log, offset_of("h", "t", 0, 9))
        rig.commit()
        await rig.until_read(2)
        assert known(rig.state) == known(await read_cold(rig.log, 2))


@pytest.mark.asyncio
async def test_a_log_that_is_not_hosted_any_more_is_forgotten(rig):
    rig.is_hosted = False
    async with rig.running(), asyncio.timeout(20):
        while list(rig.standby.states()):  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_other_topics_are_no_business_of_it(rig):
    replica = Replica("t", b"t" * 16, 0, rig.log)
    rig.standby.followed(FollowerPartition(replica, 2, LeaderEpoch(0)))
    assert len(list(rig.standby.states())) == 1


@pytest.mark.asyncio
async def test_what_cannot_be_read_is_given_up_and_reported(rig, capsys):
    batch = build_batch([Record(b"\0\1", b"no commit", 1)])
    append(rig.log, batch)
    rig.commit()
    async with rig.running(), asyncio.timeout(20):
        while list(rig.standby.states()):  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0)
    assert "groups_not_followed" in capsys.readouterr().out


@pytest.mark.asyncio
async def test_nothing_is_applied_after_the_leader_has_taken_over(rig):
    """Else two would read the same log into the same state."""
    for number in range(50):
        write(rig.log, *(offset_of("g", "t", part, number) for part in range(100)))
    rig.commit()
    async with rig.running():
        await rig.until_read(100)
        state = rig.standby.take(LaggingPartition(rig.log))
        assert state is not None
        before = (state.offset, state.records)
        await asyncio.sleep(0.05)
        assert (state.offset, state.records) == before


@pytest.mark.asyncio
async def test_the_loop_goes_on_while_much_is_read(rig):
    """Without slices the loop would stop for about 0.3 s.

    Measured by its thread's processor time: a busy machine does not matter.
    """
    for start in range(0, 30_000, 1000):
        write(rig.log, *(offset_of("g", "t", start + part, 1) for part in range(1000)))
    rig.commit()
    longest = 0.0
    async with rig.running():
        last = time.thread_time()
        while rig.state.offset < 30_000:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    assert longest < LOOP_LAG_S_MAX


RECORDS = st.one_of(
    st.builds(
        offset_of,
        st.sampled_from(GROUPS),
        st.sampled_from(TOPICS),
        st.integers(0, 1),
        st.none() | st.integers(0, 100),
    ),
    st.builds(group_of, st.sampled_from(GROUPS), st.none() | st.integers(0, 9)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(RECORDS, min_size=1, max_size=4), st.integers(-1, 1)),
        st.tuples(st.just("end"), st.integers(0, 1), st.sampled_from([b"\0\0\0\0", b"\0\0\0\1"])),
        st.tuples(st.just("commit"), st.sampled_from([50, 100, 100]), st.none()),
        st.tuples(st.just("cut"), st.integers(0, 100), st.none()),
        st.tuples(st.just("lead anew"), st.none(), st.none()),
        st.tuples(st.just("read"), st.none(), st.none()),
    ),
    max_size=30,
)


async def take(rig: Rig, steps) -> None:
    for name, what, more in steps:
        match name:
            case "write":
                write(rig.log, *what, producer_id=more)
            case "end":
                end_transaction(rig.log, what, more)
            case "commit":
                high_watermark = rig.log.log_end_offset * what // 100
                rig.commit(max(rig.partition.high_watermark, high_watermark))
            case "cut":
                rig.cut(rig.log.log_end_offset * what // 100)
            case "lead anew":
                rig.partition.end()
                rig.follow()
            case "read":
                ((key, warm),) = rig.standby._standby.items()
                await rig.standby._read(key, warm)
    read = rig.standby.take(LaggingPartition(rig.log))
    assert read is not None
    end_offset = rig.log.log_end_offset
    await read.read_on(
        lambda: end_offset,
        is_over=lambda: False,
        run_in_thread=run_in_thread,
        pause_if_due=pause_if_due,
    )
    assert known(read) == known(await read_cold(rig.log, end_offset))


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_who_is_elected_knows_what_who_reads_all_would_know(tmp_path_factory, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standby, "ROUND_S", 0)
        patch.setattr(standby, "REST_S", 0)
        rig = Rig(str(tmp_path_factory.mktemp("warm")))

        async def run() -> None:
            await take(rig, steps)

        asyncio.run(run())
