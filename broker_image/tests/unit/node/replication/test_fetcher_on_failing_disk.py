"""A follower whose disk refuses what it fetches."""

import errno

import pytest
from logfleet.replication import partition_fetch

from broker_image.tests.unit.node.replication.test_replica_fetcher import (
    batch,
    fetching,
    forgotten,
    leader,  # noqa: F401  a fixture
    me,  # noqa: F401  a fixture
    named,
    row,
)

pytestmark = pytest.mark.asyncio


async def test_a_disk_that_refuses_stops_that_partition_alone(me, leader, monkeypatch):  # noqa: F811
    one, other = me.follow(0), me.follow(1)
    refused = OSError(errno.EIO, "it was told to")

    def refuse(*_: object) -> int:
        raise refused

    monkeypatch.setattr(one.log, "append_as_follower", refuse)
    async with fetching(me, leader, one, other):
        await leader.asked()
        leader.answer(row(records=batch(0, b"a")), row(1, records=batch(0, b"b")))
        asked = await leader.asked()
        assert (named(asked), forgotten(asked)) == ([(1, 1)], [0])
        assert me.failed == [refused]


async def test_a_log_directory_that_fails_ends_what_is_followed_there(me, leader, monkeypatch):  # noqa: F811
    """It is out of use in the same moment, and its partitions are fetched no more."""
    one, other = me.follow(0), me.follow(1)
    monkeypatch.setattr(partition_fetch, "PAUSE_S_MIN", 0.001)
    async with fetching(me, leader, one, other) as fetcher:

        def refuse(*_: object) -> int:
            raise OSError(errno.EIO, "it was told to")

        monkeypatch.setattr(one.log, "append_as_follower", refuse)
        monkeypatch.setattr(me, "storage_failed", lambda gone, _: fetcher.remove(gone))
        await leader.asked()
        leader.answer(row(records=batch(0, b"a")), row(1, records=batch(0, b"b")))
        for _ in range(2):
            await leader.asked()
            leader.answer()
        assert len(fetcher) == 1
        assert not fetcher._fetcher._paused
        assert other.log.log_end_offset == 1
