"""What a consumer with isolation level 1 gets, from any offset and in pieces of any size (I32)."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.log.config import LogConfig
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.handlers.fetch_rig import fetch, only_row, request
from broker_image.tests.unit.node.handlers.transactions_rig import (
    EPOCH,
    NOW,
    PLAIN,
    History,
    batches,
    taken,
)

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=150)

ACTIONS = st.one_of(
    st.tuples(st.sampled_from([PLAIN, 1, 2, 3]), st.integers(1, 3)),
    st.tuples(st.sampled_from([1, 2, 3]), st.booleans()),
)


def history_of(actions: list[Any]) -> History:
    history = History()
    for producer_id, what in actions:
        if isinstance(what, bool):
            history.end(producer_id, commit=what)
        else:
            history.write(producer_id, what)
    return history


def follower_of(host: Host, history: History, high_watermark: int) -> FollowerPartition:
    """A follower's replica with this log, whose leader has committed that much."""
    former = host.host(config=SMALL)
    host.partitions.remove(former)
    follower = FollowerPartition(Replica.of(former), 2, EPOCH)
    host.partitions.add(follower)
    follower.log.append_as_follower(memoryview(history.data), EPOCH, NOW)
    follower.appended(len(history.data))
    follower.advance_high_watermark(high_watermark)
    return follower


def leader_of(host: Host, follower: FollowerPartition) -> LeaderPartition:
    """The same broker leads now, with this log."""
    host.partitions.remove(follower)
    leader = LeaderPartition("topic", follower.topic_id, 0, follower.log, LeaderEpoch(6))
    host.partitions.add(leader)
    return leader


def ask(host: Host, offset: int, size: int) -> Any:
    asked = request(("topic", 0, offset, {"partition_max_bytes": size}), isolation_level=1)
    return only_row(fetch(host, asked, host.context(12)))


def check_reading(host: Host, history: History, stable_end: int, sizes: tuple[int, ...]) -> None:
    """Read from each offset to the end, in pieces of each size."""
    for size in sizes:
        for start in range(stable_end + 1):
            offset = start
            while True:
                row = ask(host, offset, size)
                found, goes_on = taken(row, offset)
                assert found == history.committed(offset, goes_on)
                listed = {
                    (each.producer_id, each.first_offset) for each in row.aborted_transactions
                }
                assert len(listed) == len(row.aborted_transactions)
                if goes_on == offset:
                    assert (offset, list(batches(row)), listed) == (stable_end, [], set())
                    break
                assert listed == history.aborted(offset, goes_on)
                offset = goes_on


@given(
    actions=st.lists(ACTIONS, min_size=1, max_size=14),
    behind=st.integers(0, 5),
    size=st.integers(1, 500),
)
@settings(max_examples=60, deadline=None)
def test_readers_get_exactly_what_was_committed_from_every_offset_and_in_every_size(
    actions: list[Any], behind: int, size: int
) -> None:
    """At a follower below its own high watermark, then at a leader."""
    history = history_of(actions)
    ends = [0, *(end for _, end in history.ends)]
    high_watermark = ends[max(0, len(ends) - 1 - behind)]
    with TemporaryDirectory() as directory:
        host = Host(Path(directory) / "data")
        host.know_topic("topic", {0: 2})
        follower = follower_of(host, history, high_watermark)
        stable_end = history.last_stable_offset(high_watermark)
        assert follower.last_stable_offset == stable_end
        check_reading(host, history, stable_end, (size, 1 << 20))
        leader = leader_of(host, follower)
        stable_end = history.last_stable_offset(history.end_offset)
        assert leader.last_stable_offset == stable_end
        check_reading(host, history, stable_end, (1, size))
        host.close()
