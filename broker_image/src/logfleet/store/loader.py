"""Keeps this broker's image of the cluster up to date by one watch on the whole metadata store.

There is only one stream: watches are not ordered among each other, so what one stream shows is a
consistent past of everything. Images are published at revision boundaries. Code that decides takes
`image` once and keeps it until it has decided; a task that must act on every change takes a
`Subscription`; a request that needs a change waits for it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, TypeVar

import structlog

from logfleet.controller.brokers.vanishing import RecentBrokers
from logfleet.io.clock import SYSTEM_CLOCK, Clock
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes, ImageBuilder
from logfleet.metadata.store import MetadataStore, Snapshot

T = TypeVar("T")
log = structlog.get_logger()

SLICE_KEYS: Final = 1_000
"""Keys of a snapshot that are read in one step of the loop: about 2 ms."""


class Subscription:
    """Collects the changes since the last `take`: a set of topic ids, not a queue.

    changed: set whenever there is something to take; a subscriber that also waits for other things
    passes its own.
    """

    def __init__(self, changed: asyncio.Event | None = None) -> None:
        self._image = ClusterImage()
        self._changes = Changes(everything=True)
        self._changed = changed or asyncio.Event()

    @property
    def image(self) -> ClusterImage:
        """The newest image, taken or not; revision 0 before the first."""
        return self._image

    async def next(self) -> tuple[ClusterImage, Changes]:
        """Wait for a change; return the newest image and all that may differ from the last one."""
        await self._changed.wait()
        self._changed.clear()
        return self.take()

    async def next_within(self, seconds: float | None) -> tuple[ClusterImage, Changes]:
        """As `next`, but return after `seconds` without a change too; None: no limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.next()
        return self.take()

    def take(self) -> tuple[ClusterImage, Changes]:
        """As `next`, without waiting: there may be no change."""
        changes, self._changes = self._changes, Changes()
        return self._image, changes

    def publish(self, image: ClusterImage, changes: Changes) -> None:
        self._image = image
        self._changes.add(changes)
        self._changed.set()


class MetadataLoader:
    """`image` has revision 0 and is empty until the first snapshot has been read.

    recent_brokers: by the monotonic time of `clock`.
    """

    def __init__(self, store: MetadataStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._clock = clock
        self._image = ClusterImage()
        self.recent_brokers = RecentBrokers()
        self._subscriptions: list[Subscription] = []
        self._waiters: dict[asyncio.Future[None], Callable[[ClusterImage], bool]] = {}

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, changed: asyncio.Event | None = None) -> Subscription:
        """A subscription whose first `next` returns the present image, with everything changed."""
        subscription = Subscription(changed)
        if self._image.revision:
            subscription.publish(self._image, Changes(everything=True))
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)

    async def until(self, holds: Callable[[ClusterImage], bool]) -> ClusterImage:
        """The first image, from the present one on, for which `holds` is true.

        Bound it by asyncio.timeout.
        """
        while not holds(self._image):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = holds
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
        return self._image

    async def until_revision(self, revision: int) -> ClusterImage:
        """The first image that holds everything up to `revision`.

        `revision` must have changed a key of this store: others may write to the same etcd, and the
        image may never reach a revision of theirs.
        """
        return await self.until(lambda image: image.revision >= revision)

    async def run(self) -> None:
        """Follow until the store is closed.

        Raises StoreRefused, StoreReplaced and CorruptMetadataError; after that the image is
        invalid, and the broker must not go on serving from it.
        """
        async with aclosing(self._store.watch()) as stream:
            async for item in stream:
                if isinstance(item, Snapshot):
                    await self._read_snapshot(item)
                else:
                    builder = ImageBuilder(self._image)
                    for event in item.events:
                        builder.add(event)
                    self._publish(*builder.build(item.revision))

    async def _read_snapshot(self, snapshot: Snapshot) -> None:
        builder = ImageBuilder(ClusterImage())
        for start in range(0, len(snapshot.items), SLICE_KEYS):
            for item in snapshot.items[start : start + SLICE_KEYS]:
                builder.add(item)
            await asyncio.sleep(0)
        image, changes = builder.build(snapshot.revision)
        changes.everything = True
        log.info(
            "metadata_snapshot",
            revision=image.revision,
            keys=len(snapshot.items),
            topics=image.topic_count(),
            brokers=len(image.brokers),
        )
        self._publish(image, changes)

    def _publish(self, image: ClusterImage, changes: Changes) -> None:
        assert image.revision > self._image.revision or changes.everything, "revisions only grow"
        self._image = image
        if changes.everything or changes.brokers:
            self.recent_brokers.record(image.brokers, self._clock.monotonic_ms())
        for subscription in self._subscriptions:
            subscription.publish(image, changes)
        for waiter, holds in list(self._waiters.items()):
            if not waiter.done() and holds(image):
                waiter.set_result(None)
