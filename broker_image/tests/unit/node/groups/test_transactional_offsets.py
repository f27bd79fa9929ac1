"""I34 and I37 with a log on disk: a live coordinator has what the next one reads from its log."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.log.partition_log import PartitionLog
from logfleet.node.coordinators.loader import CoordinatorLoader
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.groups.group_shard import group_kind
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.groups.groups_rig import (
    ShardRig,
    commit,
    committed,
    fetch,
    mark,
    open_log,
    stage,
    take_up,
)


async def read_cold(log: PartitionLog) -> GroupCoordinator:
    """The coordinator of somebody who reads all of the log."""

    async def run_in_thread(read: Any) -> bytes:
        found: bytes = read()
        return found

    async def pause_if_due() -> None:
        pass

    read = CoordinatorLoader(group_kind(GroupConfig()), log)
    await read.read_on(
        lambda: log.log_end_offset,
        is_over=lambda: False,
        run_in_thread=run_in_thread,
        pause_if_due=pause_if_due,
    )
    return read.coordinator


def state(coordinator: GroupCoordinator) -> object:
    table = coordinator._table
    return table.offsets, table.staged._groups, sorted(table.groups)


def delete(rig: ShardRig) -> None:
    turn = rig.shard.turn()
    rig.shard.coordinator.delete(turn, ["g"], Waiter[object]())
    rig.shard.execute(turn)


PRODUCER = st.sampled_from([7, 8])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), PRODUCER),
        st.tuples(st.just("commit marker"), PRODUCER),
        st.tuples(st.just("abort marker"), PRODUCER),
        st.tuples(st.sampled_from(["plain", "delete"]), st.none()),
    ),
    max_size=20,
)


async def go(rig: ShardRig, steps: list[tuple[str, Any]]) -> None:
    take_up(rig.shard)
    for number, (name, producer_id) in enumerate(steps):
        match name:
            case "stage":
                assert committed(stage(rig.shard, number, producer_id)) is ErrorCode.NONE
            case "plain":
                assert committed(commit(rig.shard, number)) is ErrorCode.NONE
                assert fetch(rig.shard) == number
            case "delete":
                delete(rig)
                assert fetch(rig.shard) == -1
            case _:
                is_commit = name == "commit marker"
                marker = mark(rig.partition, producer_id=producer_id, is_commit=is_commit)
                rig.shard.end_transactions([marker])
        assert state(rig.shard.coordinator) == state(await read_cold(rig.partition.log))


@settings(max_examples=60)
@given(steps=STEPS)
def test_a_live_coordinator_has_what_the_next_one_reads(tmp_path_factory, steps):
    rig = ShardRig(str(tmp_path_factory.mktemp("log")))
    asyncio.run(go(rig, steps))


@pytest.mark.asyncio
async def test_readers_of_committed_records_stop_at_a_staged_offset_until_its_marker(tmp_path):
    rig = ShardRig(str(tmp_path))
    take_up(rig.shard)
    log = rig.partition.log
    commit(rig.shard, 1)
    stage(rig.shard, 2)
    commit(rig.shard, 3)
    assert log.last_stable_offset(log.log_end_offset) == 1
    assert log.producers.states.is_open(7, 0)
    rig.shard.end_transactions([mark(rig.partition)])
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset == 4
    again = open_log(str(tmp_path))
    assert again.last_stable_offset(again.log_end_offset) == 4
