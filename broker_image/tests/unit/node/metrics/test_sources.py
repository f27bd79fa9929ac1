import asyncio
import time
from itertools import pairwise

from logfleet.io.slices import SLICE_S
from logfleet.node.metrics.sources import Sources
from logfleet.telemetry.exposition import Family, single
from logfleet.telemetry.metric import gauge

METRIC = gauge("x", "x")


def test_others_have_their_turn_while_many_rows_are_made() -> None:
    """Each row takes a slice of its own; other work shows up between them."""
    turns = []

    def slow():
        for row in range(5):
            until = time.monotonic() + SLICE_S
            while time.monotonic() < until:
                pass
            turns.append("row")
            yield ("", row)

    async def others() -> None:
        while len(turns) < 9:
            turns.append("other")
            await asyncio.sleep(0)

    async def main() -> str:
        sources = Sources()
        sources.add(lambda: [Family(METRIC, slow())], lambda: [single(METRIC, 7)])
        text, _ = await asyncio.gather(sources.text(), others())
        return text

    text = asyncio.run(main())
    assert text.count("\nx ") == 6
    assert all(before != after for before, after in pairwise(turns[:9]))
