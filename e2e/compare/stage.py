"""What single requests are about, and how they are made."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from e2e.compare import requests as r
from e2e.compare.side import MadeTopic, Side

PATIENCE: Final[dict[str, Any]] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 1_000}
"""How long a group waits for a member that does not come back, as it is to happen when others join."""


class Stage:
    """What requests are about: a topic with records, and groups of a member each, made when asked for.

    topic: a new one of the case's own if None.
    """

    def __init__(self, side: Side, topic: MadeTopic | None = None) -> None:
        self.side = side
        self.topic: MadeTopic = topic or side.topic()
        r.fill(side, self.topic, r.batch(3), r.batch(2, first=3))
        self._made = 0

    def fresh(self, kind: str) -> str:
        """A name that nothing has yet."""
        self._made += 1
        return f"{self.side.prefix}{kind}-{self._made}"

    def fresh_topic(self) -> MadeTopic:
        self._made += 1
        return self.side.topic(f"t-{self._made}")

    def member(self) -> tuple[str, str, int]:
        """A stable group, its member and generation."""
        group = self.fresh("group")
        return group, *r.joined(self.side, group, **PATIENCE)


Base = Callable[[Stage], msgspec.Struct]
