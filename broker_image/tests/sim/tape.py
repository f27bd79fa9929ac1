"""Where every random decision of a simulation comes from, so that it can be repeated and made smaller.

A label such as `net.delay` draws from the stream before the dot. Each stream is its own: one more draw of the network leaves what faults and
clients do as it was. 0 is always the dull choice (no delay, first come first served, nothing breaks), as shrinking goes towards it.
"""

import random
from collections.abc import Callable, Mapping, Sequence

Draws = Mapping[str, Sequence[int]]


class Tape:
    """With a seed it makes draws and keeps them; with `draws` it gives those, and zeros beyond their end."""

    def __init__(self, seed: int, draws: Draws | None = None) -> None:
        self.seed = seed
        self.drawn: dict[str, list[int]] = {}
        self._given = draws
        self._random: dict[str, Callable[[], float]] = {}
        self._streams: dict[str, str] = {}  # label -> its stream

    def draw(self, label: str, n: int) -> int:
        """An integer from 0 up to n, exclusive."""
        stream = self._streams.get(label) or self._begin(label)
        drawn = self.drawn[stream]
        if self._given is None:
            value = int(self._random[stream]() * n)
        else:
            given = self._given.get(stream, ())
            value = min(given[len(drawn)], n - 1) if len(drawn) < len(given) else 0
        drawn.append(value)
        return value

    def _begin(self, label: str) -> str:
        stream = self._streams[label] = label.partition(".")[0]
        if stream not in self.drawn:
            self.drawn[stream] = []
            self._random[stream] = random.Random(f"{self.seed}/{stream}").random
        return stream

    def chance(self, label: str, percent: int) -> bool:
        """Whether something rare happens; never at 0 on the tape."""
        return percent > 0 and self.draw(label, 1000) >= 1000 - 10 * percent
