"""Loading, changes of the leader and takeovers, shown by counters."""

import asyncio
import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.node.coordinators import runtime, standby
from logfleet.node.coordinators.shard import ShardState
from logfleet.node.coordinators.waiter import Waiter
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.clocks import ManualClock
from broker_image.tests.unit.log.log_rig import truncate
from broker_image.tests.unit.node.coordinators.counters import (
    TTL_MS,
    Answer,
    Count,
)
from broker_image.tests.unit.node.coordinators.counters_rig import Rig, add, append, read, write
from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition, open_log
from broker_image.tests.unit.node.partitions.replicas_rig import B, C, replicated
from broker_image.tests.unit.node.partitions.replicas_rig import fetch as fetch_from


@pytest.fixture
def rig(tmp_path, monkeypatch) -> Rig:
    monkeypatch.setattr(standby, "ROUND_S", 0)
    return Rig(str(tmp_path))


@pytest.mark.asyncio
async def test_the_next_leader_reads_what_the_last_one_wrote(rig, until):
    async with rig.leading(until) as partition:
        add(rig.shard, 2)
        add(rig.shard, 3)
        rig.lose(partition)
        assert rig.found() is ErrorCode.NOT_COORDINATOR
        rig.lead()
        assert rig.found() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: rig.is_active)
        assert read(rig.shard).response == (ErrorCode.NONE, 5)
        assert rig.loaded[-1] is rig.shard


@pytest.mark.asyncio
async def test_a_new_leader_serves_nothing_before_all_that_it_found_is_committed(rig, until):
    write(rig, Count("a", 5))
    async with rig.running():
        partition = LaggingPartition(rig.log, replicas_state=replicated(rig.log.log_end_offset))
        rig.runtime.led(partition)
        await until(lambda: partition.ack_queue.count)
        assert rig.found() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert rig.shard.state is ShardState.LOADING
        assert rig.loaded == []
        for follower in (B, C):
            fetch_from(partition, follower, rig.log.log_end_offset)
        await until(lambda: rig.is_active)
        assert read(rig.shard).response == (ErrorCode.NONE, 5)


@pytest.mark.asyncio
async def test_a_shard_of_an_older_leader_epoch_never_closes_or_outlives_a_newer_one(rig, until):
    async with rig.running():
        older = rig.lead()
        first = rig.shard
        older.end()
        newer = rig.lead()
        assert first.state is ShardState.CLOSED
        await until(lambda: rig.is_active)
        rig.lose(older)
        assert rig.shard.partition is newer
        assert add(rig.shard, 1).response == (ErrorCode.NONE, 1)


@pytest.mark.asyncio
async def test_a_leadership_that_ends_while_its_log_is_read_starts_nothing(rig, until):
    write(rig, Count("a", 5))
    gate = asyncio.Event()

    async def read_later(work):
        await gate.wait()
        return work()

    rig.runtime._run_in_thread = read_later
    async with rig.running():
        partition = rig.lead()
        closed = rig.shard
        await asyncio.sleep(0)
        rig.lose(partition)
        gate.set()
        rig.lead()
        await until(lambda: rig.is_active)
        assert rig.loaded == [rig.shard]
        assert closed.coordinator.totals == {}


@pytest.mark.asyncio
async def test_a_leadership_may_end_between_two_steps_of_the_start(rig):
    partition = rig.lead()
    started = rig.shard
    for key in "ab":
        started.coordinator.apply(Count(key, 1))
    steps = started.start()
    next(steps)
    states = [started.state]
    rig.lose(partition)
    assert list(steps) == []
    states.append(started.state)
    assert states == [ShardState.STARTING, ShardState.CLOSED]


@pytest.mark.asyncio
async def test_a_log_that_cannot_be_decoded_has_no_coordinator_until_another_leadership(
    rig, until, capsys
):
    append(rig, build_batch([Record(b"\0\0a", b"\0\0too short", 1)]))
    async with rig.running():
        follower = rig.follow()
        await until(lambda: not list(rig.runtime.standby.states()))
        follower.end()
        partition = rig.lead()
        await until(lambda: rig.shard.state is ShardState.FAILED)
        assert rig.found() is ErrorCode.NOT_COORDINATOR
        rig.lose(partition)
        assert list(rig.runtime.shards()) == []
    reported = capsys.readouterr().out
    assert "counters_not_followed" in reported
    assert "counters_not_loaded" in reported


@pytest.mark.asyncio
async def test_a_disk_that_fails_while_loading_takes_the_partition_out_of_service(rig, until):
    write(rig, Count("a", 5))
    failure = OSError("bad sector")

    async def fail(_):
        raise failure

    rig.runtime._run_in_thread = fail
    async with rig.running():
        partition = rig.lead()
        await until(lambda: rig.failures)
        assert rig.failures == [(partition, failure)]
        assert rig.found() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.asyncio
async def test_reading_is_tried_again_while_descriptors_are_short(rig, until, monkeypatch):
    monkeypatch.setattr(runtime, "TRY_AGAIN_S", 0)
    write(rig, Count("a", 5))

    async def read_at_last(work):
        if len(rig.failures) < 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return work()

    rig.runtime._run_in_thread = read_at_last
    async with rig.leading(until):
        assert read(rig.shard).response == (ErrorCode.NONE, 5)
    assert len(rig.failures) == 2


@pytest.mark.asyncio
async def test_deadlines_begin_when_the_new_coordinator_starts_and_are_kept(tmp_path, until):
    clock = ManualClock()
    rig = Rig(str(tmp_path), clock=clock)
    write(rig, Count("a", 5))
    async with rig.leading(until):
        assert rig.shard.coordinator.next_deadline_ms() == clock.monotonic_ms() + TTL_MS
        clock.move(TTL_MS)
        rig.runtime._tick()
        assert read(rig.shard).response == (ErrorCode.NONE, 0)
        assert rig.runtime._timer is None


@pytest.mark.asyncio
async def test_partitions_of_other_topics_are_not_coordinated(rig, tmp_path):
    partition = rig.lead(open_log(str(tmp_path), "__others"))
    rig.runtime.lost(partition)
    assert list(rig.runtime.shards()) == []
    assert rig.runtime.shard_of("a", 0) is ErrorCode.NOT_COORDINATOR


@pytest.mark.asyncio
async def test_a_bug_in_a_task_ends_the_runtime_and_what_runs_beside_it(rig):
    ended = []

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def fail() -> None:
        raise ZeroDivisionError

    task = asyncio.ensure_future(rig.runtime.run(beside()))
    await asyncio.sleep(0)
    rig.runtime.spawn(fail())
    with pytest.raises(ExceptionGroup) as raised:
        await task
    assert raised.group_contains(ZeroDivisionError)
    assert ended == [True]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9)),
        st.tuples(st.just("lag"), st.booleans()),
        st.tuples(st.just("refuse"), st.booleans()),
        st.tuples(st.just("wait"), st.none()),
        st.tuples(st.just("change"), st.booleans()),
    ),
    max_size=25,
)


class History:
    """Adds to one counter through changes of the leader.

    acknowledged: what clients know to be added. unknown: what may be added or not.
    """

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.partition = rig.lead()
        self.refuses = False
        self.unknown = 0
        self.acknowledged = 0
        self.waiting: list[tuple[int, Waiter[Answer]]] = []

    async def take(self, name: str, what) -> None:
        partition = self.partition
        match name:
            case "add":
                partition.is_at_min_isr = not self.refuses
                answer = add(self.rig.shard, what)
                if self.refuses:
                    assert answer.response is not None
                    assert answer.response[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
                else:
                    self.waiting.append((what, answer))
            case "lag":
                partition.lags = what
                if not what:
                    partition.catch_up()
            case "refuse":
                self.refuses = what
            case "wait":
                await asyncio.sleep(0.003)
            case "change":
                await self.change(keeps_all=what)
        self.settle()

    def settle(self) -> None:
        """Sort the answers that have come."""
        for amount, waiter in list(self.waiting):
            if waiter.response is None:
                continue
            self.waiting.remove((amount, waiter))
            if waiter.response[0] is ErrorCode.NONE:
                self.acknowledged += amount
            else:
                self.unknown += amount

    async def change(self, *, keeps_all: bool) -> None:
        """Another broker leads for a moment, with all records or only with what is committed."""
        log, high_watermark = self.rig.log, self.partition.high_watermark
        self.rig.lose(self.partition)
        self.settle()
        assert not self.waiting, "a closed shard has answered everything"
        follower = self.rig.follow()
        if not keeps_all:
            truncate(log, high_watermark)
            self.rig.runtime.standby.truncated(log, log.log_end_offset)
        await asyncio.sleep(0)
        follower.end()
        self.partition = self.rig.lead()
        while not self.rig.is_active:  # noqa: ASYNC110  the subjects have no event for it
            await asyncio.sleep(0)
        response = read(self.rig.shard).response
        assert response is not None
        _, total = response
        assert self.acknowledged <= total <= self.acknowledged + self.unknown


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_every_acknowledged_add_is_kept_and_none_is_counted_twice(tmp_path_factory, steps):
    async def run() -> None:
        rig = Rig(str(tmp_path_factory.mktemp("counters")), write_timeout_ms=1)
        async with rig.running():
            history = History(rig)
            while not rig.is_active:  # noqa: ASYNC110  the subjects have no event for it
                await asyncio.sleep(0)
            for step in steps:
                await history.take(*step)
            await history.change(keeps_all=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standby, "ROUND_S", 0)
        patch.setattr(standby, "REST_S", 0)
        asyncio.run(run())
