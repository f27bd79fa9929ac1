"""A follower whose disk is held up has in memory what a killed process would lose."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from logfleet.log.directories.disk import SLOW_S

from broker_image.tests.unit.log.gated_files import GatedFiles
from broker_image.tests.unit.node.replication.test_replica_fetcher import (
    Follower,
    Leader,
    batch,
    fetching,
    forgotten,
    leader,  # noqa: F401  a fixture
    named,
    row,
)

pytestmark = pytest.mark.asyncio


@pytest.fixture
def files() -> Iterator[GatedFiles]:
    made = GatedFiles()
    yield made
    made.writes.set()


@pytest.fixture
def me(tmp_path: Path, leader: Leader, files: GatedFiles) -> Iterator[Follower]:  # noqa: F811
    made = Follower(tmp_path / "data", leader, files)
    yield made
    files.writes.set()
    made.close()


async def test_it_reports_that_it_has_records_once_they_are_written(me, leader, files):  # noqa: F811
    """The fetch offset counts as having all below it: the leader acknowledges on that."""
    one, other = me.follow(0), me.follow(1)
    async with fetching(me, leader, one, other):
        assert named(await leader.asked()) == [(0, 0), (1, 0)]
        one.log.disk.on_slow_write(2 * SLOW_S)
        files.path = one.log.directory
        files.writes.clear()
        leader.answer(row(records=batch(0, b"a"), high_watermark=1))
        asked = await leader.asked()
        assert (one.log.log_end_offset, one.log.written_end_offset) == (1, 0)
        assert (named(asked), forgotten(asked)) == ([], [0])
        assert one.high_watermark == 0
        files.writes.set()
        leader.answer()
        assert named(await leader.asked_about(0)) == [(0, 1)]
        assert one.log.written_end_offset == 1
