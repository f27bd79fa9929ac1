"""Counts this broker's replicas that are out of sync, updated by changes.

A probe asks every two seconds, with up to 10,000 partitions.
"""

import asyncio
from typing import Final

from logfleet.controller.brokers.readiness import out_of_sync
from logfleet.io.slices import Slices
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.store.loader import Subscription

GATHERING_S: Final = 0.1
"""Time for which changes are gathered.

When thousands of partitions change, each revision that does it would count whole topics again.
"""


class OwnReplicas:
    """The count of this broker's replicas that are out of sync.

    image: the last one that was counted. missing: the count in it.
    """

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._by_topic: dict[bytes, int] = {}
        self._slices = Slices()
        self.image = ClusterImage()

    @property
    def missing(self) -> int:
        return sum(self._by_topic.values())

    async def run(self, subscription: Subscription) -> None:
        while True:
            await self.update(*await subscription.next())
            await asyncio.sleep(GATHERING_S)

    async def update(self, image: ClusterImage, changes: Changes) -> None:
        found = {} if changes.everything else dict(self._by_topic)
        topic_ids = (topic.id for topic in image.topics()) if changes.everything else changes.topics
        for topic_id in topic_ids:
            topic = image.topic_by_id(topic_id)
            missing = 0 if topic is None else out_of_sync(topic, self._broker_id)
            found.pop(topic_id, None)
            if missing:
                found[topic_id] = missing
            await self._slices.pause_if_due()
        self._by_topic, self.image = found, image
