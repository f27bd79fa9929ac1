"""What the talks with one broker are about."""

from collections.abc import Generator
from typing import Any, Final

import msgspec
from logfleet.wire import messages as m

from e2e.compare.side import MadeTopic, Side
from e2e.compare.stage import Stage

Talk = Generator[msgspec.Struct | tuple[msgspec.Struct, int], Any, None]
TOPIC: Final = "wire"
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
NEW_MEMBER_EPOCH, LEAVING_MEMBER_EPOCH = 0, -1


class World(Stage):
    """A topic for all talks, and what later ones learn from earlier ones.

    acquired: version of ShareFetch -> an acquired offset, and the session epoch of the next request. coordinators: kinds that there are.
    """

    def __init__(self, side: Side, coordinators: tuple[int, ...] = (GROUP, TRANSACTION)) -> None:
        super().__init__(side, MadeTopic(TOPIC, side.make_topic(TOPIC)))
        self.cluster_id: str = side.get(m.MetadataRequest(topics=[]), 12).cluster_id
        self.coordinators = coordinators
        self.acquired: dict[int, tuple[int, int]] = {}
