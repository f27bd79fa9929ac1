import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.metadata.image import ClusterImage
from logfleet.node.partitions.leadership import Key
from logfleet.node.partitions.pending_work import WHOLE_TOPIC, DesiredState, PendingWork

pytestmark = pytest.mark.asyncio

TOPIC = bytes(range(16))
KEY, OTHER = (TOPIC, 0), (TOPIC, 1)


def image(revision: int) -> ClusterImage:
    return ClusterImage(revision)


class Disk:
    """Lets each piece of work end when the test says so. begun: (key, revision) of each."""

    def __init__(self) -> None:
        self.begun: list[tuple[Key, int]] = []
        self.may_end: dict[Key, asyncio.Event] = {}
        self.fulfils_newest = False
        self.pending: PendingWork

    def gate(self, key: Key) -> asyncio.Event:
        return self.may_end.setdefault(key, asyncio.Event())

    async def carry_out(self, key: Key, desired: DesiredState) -> DesiredState:
        self.begun.append((key, desired.image.revision))
        await self.gate(key).wait()
        newest = self.pending.newest(key)
        return newest if self.fulfils_newest and newest is not None else desired


@pytest_asyncio.fixture
async def disk() -> AsyncIterator[Disk]:
    made = Disk()
    async with asyncio.TaskGroup() as tasks:
        made.pending = PendingWork(made.carry_out, tasks)
        yield made
        for key in [KEY, OTHER, (TOPIC, WHOLE_TOPIC)]:
            made.gate(key).set()


async def turn() -> None:
    """Let all run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_partition_that_waits_holds_up_no_other(disk: Disk) -> None:
    disk.pending.want(KEY, image(1))
    disk.pending.want(OTHER, image(1))
    disk.gate(OTHER).set()
    await turn()
    assert disk.begun == [(KEY, 1), (OTHER, 1)]
    disk.pending.want((TOPIC, WHOLE_TOPIC), image(1))
    assert (disk.pending.newest(OTHER), disk.pending.indexes(TOPIC)) == (None, {0})


async def test_of_what_newer_images_want_the_newest_is_done_next(disk: Disk) -> None:
    for revision in (1, 2, 3):
        disk.pending.want(KEY, image(revision))
        await turn()
    assert disk.begun == [(KEY, 1)]
    disk.gate(KEY).set()
    await turn()
    assert disk.begun == [(KEY, 1), (KEY, 3)]


async def test_what_was_done_by_a_newer_image_is_not_done_again(disk: Disk) -> None:
    disk.fulfils_newest = True
    disk.pending.want(KEY, image(1))
    await turn()
    disk.pending.want(KEY, image(2))
    disk.gate(KEY).set()
    await turn()
    assert (disk.begun, disk.pending.indexes(TOPIC)) == ([(KEY, 1)], set())


async def test_the_same_image_may_want_it_again(disk: Disk) -> None:
    """As when a partition that was suspended is to go on."""
    same = image(1)
    disk.pending.want(KEY, same)
    await turn()
    disk.pending.want(KEY, same)
    disk.gate(KEY).set()
    await turn()
    assert disk.begun == [(KEY, 1), (KEY, 1)]


async def test_what_is_dropped_is_not_wanted_any_more(disk: Disk) -> None:
    disk.pending.want(KEY, image(1))
    disk.pending.want(OTHER, image(1))
    await turn()
    disk.pending.want(KEY, image(2))
    disk.pending.drop(TOPIC, but={1})
    assert disk.pending.newest(KEY) is None
    assert disk.pending.newest(OTHER) is not None
    assert disk.pending.indexes(TOPIC) == {0, 1}, "it is under way until its disk answers"
    disk.gate(KEY).set()
    await turn()
    assert disk.begun == [(KEY, 1), (OTHER, 1)]


async def test_what_is_dropped_can_be_wanted_again_and_waits_for_what_is_under_way(
    disk: Disk,
) -> None:
    disk.pending.want(KEY, image(1))
    await turn()
    disk.pending.drop(TOPIC, but=set())
    disk.pending.want(KEY, image(3))
    await turn()
    assert disk.begun == [(KEY, 1)]
    disk.gate(KEY).set()
    await turn()
    assert disk.begun == [(KEY, 1), (KEY, 3)]


@pytest.mark.parametrize(
    "wanted_by, revision, after, is_waited_for",
    [
        ((4,), 4, 0, True),
        ((4,), 3, 0, False),  # a later image than was asked for
        ((4,), 9, 4, False),  # an earlier one: its disk may hang
        ((4, 7), 9, 5, True),
        ((4, 7), 5, 0, True),
    ],
)
async def test_it_waits_until_all_is_done_that_some_images_want(
    disk: Disk, wanted_by: tuple[int, ...], revision: int, after: int, *, is_waited_for: bool
) -> None:
    for each in wanted_by:
        disk.pending.want(KEY, image(each))
    waiting = asyncio.ensure_future(disk.pending.until_done(revision, after))
    await turn()
    assert waiting.done() is not is_waited_for
    disk.gate(KEY).set()
    await waiting
