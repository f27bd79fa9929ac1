"""Where the metrics of a broker come from, and their text, made in slices: a scrape of many partitions does not stop the loop."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from logfleet.telemetry.exposition import Family, pieces

SLICE_S: Final = 0.002
"""Longest step; what follows one may add a rare large piece, as the walk over a cluster's topics does not."""

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
        slice_end = time.monotonic() + SLICE_S
        for piece in pieces(self.families()):
            if piece:
                parts.append(piece)
            if time.monotonic() >= slice_end:
                await asyncio.sleep(0)
                slice_end = time.monotonic() + SLICE_S
        return "".join(parts)
