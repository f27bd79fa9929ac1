"""Collects a broker's metrics and makes their text in slices.

So a scrape of many partitions does not stop the loop.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from logfleet.io.slices import Slices
from logfleet.telemetry.exposition import Family, pieces

Source = Callable[[], Iterable[Family]]
"""The metrics of one part of the broker.

Its rows are made while they are read, between other steps of the loop: it may iterate over copies
only, and the objects in them may be deleted by then.
"""


class Sources:
    """All sources of a broker; its parts add theirs as they start."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, *sources: Source) -> None:
        """Report the metrics of these sources from now on."""
        self._sources += sources

    def families(self) -> Iterator[Family]:
        """Everything, in the order in which it was added."""
        return chain.from_iterable(source() for source in tuple(self._sources))

    async def text(self) -> str:
        """All metrics in Prometheus' text format."""
        parts = []
        slices = Slices()
        for piece in pieces(self.families()):
            if piece:
                parts.append(piece)
            await slices.pause_if_due()
        return "".join(parts)
