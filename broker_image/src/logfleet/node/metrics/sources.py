"""Where the metrics of a broker come from, and their text, made in slices: a scrape of many partitions does not stop the loop."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from logfleet.io.slices import Slices
from logfleet.telemetry.exposition import Family, pieces

Source = Callable[[], Iterable[Family]]
"""What a part of the broker tells. Its rows are made while they are asked for, between other steps of the loop: they may walk over
copies only, and what they find may be gone."""


class Sources:
    """All sources of a broker; pieces of it add theirs as they start."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, *sources: Source) -> None:
        """Tell these from now on."""
        self._sources += sources

    def families(self) -> Iterator[Family]:
        """Everything, in the order in which it was added."""
        return chain.from_iterable(source() for source in tuple(self._sources))

    async def text(self) -> str:
        """Everything in Prometheus' text format."""
        parts = []
        slices = Slices()
        for piece in pieces(self.families()):
            if piece:
                parts.append(piece)
            await slices.pause_if_due()
        return "".join(parts)
