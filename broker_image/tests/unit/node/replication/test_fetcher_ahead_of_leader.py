"""A follower with leader epochs above its leader's: the metadata store was restored by hand."""

from collections.abc import Callable

import pytest
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.replication import fetcher as fetcher_module
from logfleet.replication import partition_fetch
from logfleet.replication.partition_fetch import PartitionFetch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, ListOffsetsRequest, ListOffsetsResponse
from structlog.testing import capture_logs

from broker_image.tests.unit.controller.running.controller_rig import until
from broker_image.tests.unit.node.replication.test_replica_fetcher import (
    LEADER,
    batch,
    fetching,
    forgotten,
    leader,  # noqa: F401  a fixture
    me,  # noqa: F401  a fixture
    named,
    row,
)

pytestmark = pytest.mark.asyncio

REPORT = "leader_epoch_is_behind_logs"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each pause of a partition, which are short here."""
    monkeypatch.setattr(partition_fetch, "PAUSE_S_MIN", 0.01)
    monkeypatch.setattr(fetcher_module, "AHEAD_S_MAX", 0.04)
    taken: list[float] = []
    take_pause = PartitionFetch.take_pause

    def recorded(fetch: PartitionFetch[FollowerPartition], s_max: float) -> float:
        taken.append(take_pause(fetch, s_max))
        return taken[-1]

    monkeypatch.setattr(PartitionFetch, "take_pause", recorded)
    return taken


def fetches_of(leader, index: int) -> int:  # noqa: F811
    return sum(index in dict(named(request)) for request in leader.of(FetchRequest))


async def test_records_above_the_leaders_epoch_are_asked_for_in_growing_pauses(me, leader, pauses):  # noqa: F811
    """The other partitions of that leader go on."""
    one, other = me.follow(0), me.follow(1)
    with capture_logs() as lines:
        async with fetching(me, leader, one, other):
            for _ in range(5):
                await leader.asked_about(0)
                leader.answer(row(records=batch(0, b"a", epoch=9), high_watermark=1))
                asked = await leader.asked()
                assert (named(asked), forgotten(asked)) == ([], [0])
                leader.answer()
            assert pauses == [0.01, 0.02, 0.04, 0.04, 0.04]
            assert fetches_of(leader, 0) == 5
            await leader.asked_about(0)
            leader.answer(row(1, records=batch(0, b"x"), high_watermark=1))
            await leader.asked_about(1)
        assert (one.log.log_end_offset, other.log.log_end_offset) == (0, 1)
    (report,) = [line for line in lines if line["event"] == REPORT]
    assert (report["topic"], report["partition"], report["leader"]) == ("topic", 0, 1)
    assert (report["leader_epoch"], report["log_epoch"]) == (5, 9)
    assert "docs/how-to/restoring-metadata.md" in report["note"]


async def test_a_log_that_ends_in_an_epoch_unknown_to_its_leader_is_reported_once(
    me,  # noqa: F811
    leader,  # noqa: F811
    pauses,
):
    """Both logs end at the same offset, so the leader cannot say where they part."""
    leader.answers[ListOffsetsRequest] = range_of(0, 1)
    followed = FollowerPartition(
        me.follow(0, batch(0, b"a", epoch=9), leader_epoch=9), LEADER, LeaderEpoch(5)
    )
    with capture_logs() as lines:
        async with fetching(me, leader, followed):
            for _ in range(5):
                await leader.asked_about(0)
                leader.answer(row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
            await leader.asked_about(0)
            assert pauses == [0.01, 0.02, 0.04, 0.04, 0.04]
            assert fetches_of(leader, 0) == 6
        assert (followed.log.log_end_offset, me.cuts) == (1, [])
    (report,) = [line for line in lines if line["event"] == REPORT]
    assert (report["leader_epoch"], report["log_epoch"]) == (5, 9)


async def test_raised_leader_epochs_end_the_pause_at_once(me, leader, monkeypatch):  # noqa: F811
    """Step 4 of docs/how-to/restoring-metadata.md."""
    monkeypatch.setattr(partition_fetch, "PAUSE_S_MIN", 3600.0)
    monkeypatch.setattr(fetcher_module, "AHEAD_S_MAX", 3600.0)
    followed = me.follow()
    async with fetching(me, leader, followed) as fetcher:
        await leader.asked()
        sent = batch(0, b"a", epoch=9)
        leader.answer(row(records=sent, high_watermark=1))
        await until(lambda: fetcher._fetcher._paused)
        fetcher.remove(followed)
        followed = FollowerPartition(followed, LEADER, LeaderEpoch(10))
        fetcher.add(followed)
        assert named(await leader.asked()) == [(0, 0)]
        leader.answer(row(records=sent, high_watermark=1))
        assert named(await leader.asked()) == [(0, 1)]
        assert followed.log.log_end_offset == 1


async def test_what_comes_after_records_that_were_appended_is_reported_again(me, leader, pauses):  # noqa: F811
    """As where retention took the leader's batches of later epochs away; pauses are short again."""
    followed = me.follow()
    with capture_logs() as lines:
        async with fetching(me, leader, followed):
            for offset in (0, 1):
                for _ in range(2):
                    await leader.asked_about(0)
                    leader.answer(row(records=batch(offset, b"a", epoch=9), high_watermark=1))
                await leader.asked_about(0)
                leader.answer(row(records=batch(offset, b"a"), high_watermark=offset + 1))
            await leader.asked_about(0)
        assert followed.log.log_end_offset == 2
    assert pauses == [0.01, 0.02, 0.01, 0.02]
    assert [line["event"] for line in lines].count(REPORT) == 2


async def test_a_first_batch_that_is_cut_off_is_no_busy_loop_either(me, leader, pauses):  # noqa: F811
    """Nothing can be appended of it, and nothing is wrong with the leader epochs."""
    followed = me.follow()
    with capture_logs() as lines:
        async with fetching(me, leader, followed):
            await leader.asked()
            leader.answer(row(records=batch(0, b"a")[:-1], high_watermark=1))
            assert named(await leader.asked()) == [(0, 0)]
    assert (pauses, followed.log.log_end_offset) == ([0.01], 0)
    assert REPORT not in [line["event"] for line in lines]


def range_of(start: int, end: int) -> Callable[[ListOffsetsRequest], ListOffsetsResponse]:
    """Answers ListOffsets for a log of these bounds."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        (wanted,) = request.topics[0].partitions
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, offset={-2: start, -1: end}[wanted.timestamp]
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="topic", partitions=[found])
        return ListOffsetsResponse(topics=[topic])

    return answer
