"""Work that images want of this broker's partitions and that may wait for a disk.

An image is applied without waiting for this work, so a disk that hangs delays its own partitions
only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from logfleet.metadata.image import ClusterImage
from logfleet.node.partitions.leadership import Key

WHOLE_TOPIC: Final = -1
"""Takes the place of the index in the key of work on a whole topic."""


class DesiredState:
    """The state of a partition or topic that one image asks for."""

    __slots__ = ("image",)

    def __init__(self, image: ClusterImage) -> None:
        self.image = image


class _Work:
    """The work on one key. first, last: revisions of the images that have wanted it.

    newest: what to do, None once it is dropped.
    """

    __slots__ = ("first", "last", "newest", "task")

    task: asyncio.Task[None]

    def __init__(self, desired: DesiredState) -> None:
        self.newest: DesiredState | None = desired
        self.first = self.last = desired.image.revision


class PendingWork:
    """One task for each key. Newer images replace work on a key that has not begun.

    carry_out: called with a key and its desired state; returns the one that it has brought about,
    which may be a newer one by then. It is called again until that is the newest. tasks: where it
    runs.
    """

    def __init__(
        self,
        carry_out: Callable[[Key, DesiredState], Awaitable[DesiredState]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._carry_out = carry_out
        self._tasks = tasks
        self._by_topic: dict[bytes, dict[int, _Work]] = {}

    def want(self, key: Key, image: ClusterImage) -> None:
        """Bring the key in line with this image, after the work that runs for it."""
        topic_id, index = key
        desired = DesiredState(image)
        works = self._by_topic.setdefault(topic_id, {})
        work = works.get(index)
        if work is None:
            work = works[index] = _Work(desired)
            work.task = self._tasks.create_task(self._run(key, work))
        else:
            work.newest, work.last = desired, image.revision

    def replace_image(self, topic_id: bytes, image: ClusterImage) -> None:
        """The work that runs for the topic's partitions is to fulfil what this image wants of them.

        Call it before anything of the image is applied to the topic: no partition may take a role
        by an older image after that.
        """
        for work in self._by_topic.get(topic_id, {}).values():
            if work.newest is not None:
                work.newest = DesiredState(image)

    def drop(self, topic_id: bytes, *, but: set[int]) -> None:
        """Drop the work on the topic's partitions, except for these."""
        for index, work in self._by_topic.get(topic_id, {}).items():
            if index not in but:
                work.newest = None

    def newest(self, key: Key) -> DesiredState | None:
        """The state that the newest image asks for; None if there is none, or it is reached."""
        topic_id, index = key
        work = self._by_topic.get(topic_id, {}).get(index)
        return None if work is None else work.newest

    def indexes(self, topic_id: bytes) -> set[int]:
        """Partitions of the topic for which work runs, dropped or not."""
        return {index for index in self._by_topic.get(topic_id, {}) if index != WHOLE_TOPIC}

    async def until_done(self, revision: int, after: int) -> None:
        """Return once all work is done that the images in (`after`, `revision`] want."""
        while tasks := [
            work.task for work in self._all() if work.first <= revision and work.last > after
        ]:
            await asyncio.wait(tasks)

    def _all(self) -> Iterator[_Work]:
        for works in self._by_topic.values():
            yield from works.values()

    async def _run(self, key: Key, work: _Work) -> None:
        topic_id, index = key
        while (desired := work.newest) is not None:
            done = await self._carry_out(key, desired)
            if work.newest is done:
                break
        del self._by_topic[topic_id][index]
        if not self._by_topic[topic_id]:
            del self._by_topic[topic_id]
