"""Cuts work on many partitions into slices, so that requests are served between two of them."""

from collections.abc import Iterable, Iterator
from typing import Final

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.fencing import newcomers
from logfleet.controller.changes.election_writes import (
    Imbalance,
    election_steps,
    imbalances,
    preferences,
)
from logfleet.controller.terms.effects import Emit, Yield
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.packing import Step

SLICE_PARTITIONS: Final = 100
"""Partitions handled in one step of the loop: 0.1 ms, up to 3 ms if all of them change."""


class Turns:
    """Asks for the next turn, once for all that wait for it."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._is_asked = False

    def ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._emit(Yield())

    def came(self) -> None:
        self._is_asked = False


class Elections:
    """Elections of some topics by one image. elected: partitions that change, so far."""

    def __init__(
        self, image: ClusterImage, topic_ids: Iterable[bytes], layers: BrokerLayers, wall_ms: int
    ) -> None:
        self.elected = 0
        self.are_done = False
        self._image = image
        self._layers = layers
        self._may_be_unclean = not newcomers(image)
        self._preferred = preferences(image, wall_ms)
        self._slices = _slices(image, topic_ids)

    def next_steps(self) -> list[Step]:
        """The writes of the next slice."""
        steps: list[Step] = []
        checked = 0
        for topic, indexes in self._slices:
            steps += election_steps(
                self._image,
                topic,
                self._layers,
                indexes=indexes,
                may_be_unclean=self._may_be_unclean,
                preferred=self._preferred,
            )
            checked += len(indexes)
            if checked >= SLICE_PARTITIONS:
                break
        else:
            self.are_done = True
        self.elected += len(steps)
        return steps


class Imbalances:
    """Collects the partitions of an image that their first replica could lead but does not."""

    def __init__(self, image: ClusterImage) -> None:
        self.found: dict[Imbalance, None] = {}
        self.are_all = False
        self._image = image
        self._topics = iter(image.topics())

    def collect(self) -> None:
        """Check the next slice."""
        checked = 0
        for topic in self._topics:
            self.found.update(dict.fromkeys(imbalances(self._image, topic)))
            checked += len(topic.partitions)
            if checked >= SLICE_PARTITIONS:
                return
        self.are_all = True


def _slices(image: ClusterImage, topic_ids: Iterable[bytes]) -> Iterator[tuple[Topic, range]]:
    """At most SLICE_PARTITIONS of a topic at a time."""
    for topic_id in topic_ids:
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            count = len(topic.partitions)
            for first in range(0, count, SLICE_PARTITIONS):
                yield topic, range(first, min(first + SLICE_PARTITIONS, count))
