"""Follows what is set for this broker while it runs, and tells the pieces of it that a change concerns."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import structlog

from logfleet.control.config_keys import ConfigError
from logfleet.control.dynamic_configs import Piece, in_force, layers_of, pieces_to_tell
from logfleet.control.topic_configs import BrokerLayers
from logfleet.metadata.image import ClusterImage
from logfleet.node.cluster.metadata_loader import Subscription

log = structlog.get_logger(__name__)

Told: TypeAlias = Callable[[BrokerLayers], Awaitable[None]]


class DynamicConfig:
    """layers: where the values that hold now come from. tell: by piece, what it is told with when it has to change."""

    def __init__(self, layers: BrokerLayers, node_id: int, tell: Mapping[Piece, Told]) -> None:
        self.layers = layers
        self._node_id = node_id
        self._tell = tell
        self._told: frozenset[str] = frozenset()

    async def run(self, subscription: Subscription) -> None:
        """Follow the image until cancelled."""
        while True:
            image, changes = await subscription.next()
            if changes.everything or changes.broker_configs:
                await self.update(image)

    async def update(self, image: ClusterImage) -> None:
        """Obey what the image says, from now on."""
        old = self.layers
        self.layers, problems = in_force(layers_of(old.static, image, self._node_id))
        self._tell_problems(problems)
        for piece in sorted(pieces_to_tell(old, self.layers), key=lambda piece: piece.value):
            log.info("config_changed", piece=piece.value)
            if piece in self._tell:
                await self._tell[piece](self.layers)

    def _tell_problems(self, problems: Iterable[ConfigError]) -> None:
        """Say of stored values that they are not obeyed: once, until they are others."""
        reasons = {problem.message: problem.key for problem in problems}
        for reason, key in reasons.items():
            if reason not in self._told:
                log.error("config_not_applied", key=key, reason=reason)
        self._told = frozenset(reasons)
