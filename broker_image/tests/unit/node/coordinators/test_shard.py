"""Writes, reads and the states of one shard, shown by counters."""

import asyncio

import pytest
from logfleet.coordinators.turn import Turn
from logfleet.log.batch_rules import BatchRefusal
from logfleet.node.coordinators.shard import PREVIOUS_STATES, ShardState
from logfleet.node.coordinators.waiter import Waiter
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.coordinators.counters import TTL_MS, Answer, Count, Reset
from broker_image.tests.unit.node.coordinators.counters_rig import Rig, add, read

pytestmark = pytest.mark.asyncio

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(str(tmp_path))


async def test_with_one_replica_a_write_is_answered_at_once(rig, until):
    async with rig.leading(until):
        assert add(rig.shard, 2).response == (ErrorCode.NONE, 2)
        assert add(rig.shard, 3).response == (ErrorCode.NONE, 5)
        assert read(rig.shard).response == (ErrorCode.NONE, 5)
        assert not rig.runtime._tasks


async def test_writes_and_reads_are_answered_in_order_once_followers_have_the_records(rig, until):
    async with rig.leading(until) as partition:
        partition.lags = True
        answers = [add(rig.shard, 1), add(rig.shard, 2), read(rig.shard)]
        assert [each.response for each in answers] == [None] * 3
        assert rig.shard.coordinator.totals == {"a": 3}, "the state equals the log"
        partition.ends.flushed(1)
        await until(lambda: answers[0].response)
        assert [each.response for each in answers] == [(ErrorCode.NONE, 1), None, None]
        partition.catch_up()
        await until(lambda: answers[2].response)
        assert answers[1].response == answers[2].response == (ErrorCode.NONE, 3)


@pytest.mark.parametrize(
    "error, answer",
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, UNAVAILABLE),
    ],
)
async def test_after_a_refused_append_nothing_has_happened(rig, until, capsys, error, answer):
    async with rig.leading(until) as partition:
        add(rig.shard, 5)
        partition.refusal = BatchRefusal(error, "refused")
        assert add(rig.shard, 1).response == (answer, 6)
        partition.refusal = None
        assert read(rig.shard).response == (ErrorCode.NONE, 5)
        assert add(rig.shard, 1).response == (ErrorCode.NONE, 6)
    assert "counter_records_refused" in capsys.readouterr().out


async def test_below_min_isr_nothing_is_appended(rig, until):
    async with rig.leading(until) as partition:
        partition.is_at_min_isr = False
        assert add(rig.shard, 1).response == (UNAVAILABLE, 1)
        assert partition.log.log_end_offset == 0
        partition.is_at_min_isr = True
        assert add(rig.shard, 1).response == (ErrorCode.NONE, 1)


async def test_a_disk_that_fails_ends_the_leadership_and_applies_nothing(rig, until):
    async with rig.leading(until) as partition:
        partition.failure = OSError("bad sector")
        assert add(rig.shard, 1).response == (ErrorCode.NOT_COORDINATOR, 1)
        assert rig.failures == [(partition, partition.failure)]
        assert rig.shard.coordinator.totals == {}


async def test_the_outcome_of_a_write_that_times_out_is_unknown(tmp_path, until):
    """It is in the log: a client that adds again may have added twice, as with Kafka."""
    rig = Rig(str(tmp_path), write_timeout_ms=1)
    async with rig.leading(until) as partition:
        partition.lags = True
        first = add(rig.shard, 5)
        await until(lambda: first.response)
        assert first.response == (UNAVAILABLE, 5)
        partition.lags = False
        assert add(rig.shard, 5).response == (ErrorCode.NONE, 10)
        assert read(rig.shard).response == (ErrorCode.NONE, 10)


async def test_a_write_that_is_repeated_until_it_is_committed_keeps_one_task(tmp_path, until):
    """As a decided transaction, whose markers wait for its commit however long that takes."""
    rig = Rig(str(tmp_path), write_timeout_ms=1)
    outcomes: list[ErrorCode] = []
    tasks: set[int] = set()

    def again(turn: Turn[Count], error: ErrorCode) -> None:
        outcomes.append(error)
        tasks.add(len(rig.runtime._tasks))
        if error is ErrorCode.REQUEST_TIMED_OUT:
            turn.write([], again)

    async with rig.leading(until) as partition:
        partition.lags = True
        turn = rig.shard.turn()
        turn.write([Count("a", 1)], again)
        rig.shard.execute(turn)
        await until(lambda: len(outcomes) > 5)
        partition.catch_up()
        await until(lambda: outcomes[-1] is ErrorCode.NONE)
    assert tasks == {1}


async def test_a_lost_leadership_answers_every_waiter_and_takes_no_more_writes(rig, until):
    async with rig.leading(until) as partition:
        shard = rig.shard
        partition.lags = True
        parked = Waiter[Answer]()
        shard.coordinator.wait("a", 100, parked)
        waiting = [add(shard, 5), read(shard)]
        end_offset = partition.log.log_end_offset
        rig.lose(partition)
        assert [each.response for each in waiting] == [(ErrorCode.NOT_COORDINATOR, 5)] * 2
        assert parked.response == (ErrorCode.NOT_COORDINATOR, -1)
        assert add(shard, 5).response == (ErrorCode.NOT_COORDINATOR, 10)
        assert read(shard).response == (ErrorCode.NOT_COORDINATOR, 5)
        assert partition.log.log_end_offset == end_offset
        assert shard.state is ShardState.CLOSED


async def test_a_parked_request_is_answered_when_what_it_waits_for_is_committed(rig, until):
    async with rig.leading(until) as partition:
        partition.lags = True
        parked = Waiter[Answer]()
        rig.shard.coordinator.wait("a", 2, parked)
        add(rig.shard, 2)
        await asyncio.sleep(0)
        assert parked.response is None
        partition.catch_up()
        await until(lambda: parked.response)
        assert parked.response == (ErrorCode.NONE, 2)


async def test_a_walk_goes_step_by_step_while_requests_are_served(rig, until):
    async with rig.leading(until) as partition:
        for key in "ab":
            add(rig.shard, 1, key)
        shard, walk = rig.shard, Reset(rig.shard.coordinator)
        assert shard.step(walk)
        assert sorted(shard.coordinator.totals.values()) == [0, 1]
        assert not shard.step(walk)
        assert set(shard.coordinator.totals.values()) == {0}
        another = Reset(shard.coordinator)
        rig.lose(partition)
        assert not shard.step(another)
        assert len(another._keys) == 2, "no step is taken"


async def test_a_counter_expires_by_its_deadline(rig, until):
    async with rig.leading(until) as partition:
        add(rig.shard, 1)
        turn = rig.shard.turn()
        later = Turn[Count](turn.now_ms + TTL_MS, turn.wall_ms + TTL_MS)
        rig.shard.coordinator.tick(later)
        rig.shard.execute(later)
        assert read(rig.shard).response == (ErrorCode.NONE, 0)
        assert partition.log.log_end_offset == 2, "the tombstone is in the log"


async def test_states_follow_one_another_only_in_their_order(rig):
    for state in ShardState:
        for following in ShardState:
            partition = rig.lead()
            shard = rig.shard
            shard.state = state
            if state in PREVIOUS_STATES[following]:
                shard._enter(following)
                assert shard.is_loaded == (following is ShardState.ACTIVE)
                assert shard.is_closed == (following in {ShardState.CLOSED, ShardState.FAILED})
            else:
                with pytest.raises(AssertionError):
                    shard._enter(following)
            partition.end()
