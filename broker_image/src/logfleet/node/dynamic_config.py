"""Follows this broker's dynamic configuration, and updates the parts that a change concerns."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import structlog

from logfleet.config.dynamic import BrokerPart, in_force, layers_of, pieces_to_notify
from logfleet.config.keys import ConfigError
from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage
from logfleet.store.loader import Subscription

log = structlog.get_logger(__name__)

Update: TypeAlias = Callable[[BrokerLayers], Awaitable[None]]


class DynamicConfig:
    """Applies the broker's configuration in the store as it changes.

    layers: the present values, by source. updates: by piece, called when its values have changed.
    """

    def __init__(
        self, layers: BrokerLayers, node_id: int, updates: Mapping[BrokerPart, Update]
    ) -> None:
        self.layers = layers
        self._node_id = node_id
        self._updates = updates
        self._reported: frozenset[str] = frozenset()

    async def run(self, subscription: Subscription) -> None:
        """Follow the image until cancelled."""
        while True:
            image, changes = await subscription.next()
            if changes.everything or changes.broker_configs:
                await self.update(image)

    async def update(self, image: ClusterImage) -> None:
        """Apply the image's configuration."""
        old = self.layers
        self.layers, problems = in_force(layers_of(old.static, image, self._node_id))
        self._report_problems(problems)
        for piece in sorted(pieces_to_notify(old, self.layers), key=lambda piece: piece.value):
            log.info("config_changed", piece=piece.value)
            if piece in self._updates:
                await self._updates[piece](self.layers)

    def _report_problems(self, problems: Iterable[ConfigError]) -> None:
        """Log stored values that cannot be applied: once, until they change."""
        reasons = {problem.message: problem.key for problem in problems}
        for reason, key in reasons.items():
            if reason not in self._reported:
                log.error("config_not_applied", key=key, reason=reason)
        self._reported = frozenset(reasons)
