"""An internal topic that is created when a client first needs it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import structlog

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.internal_topics import factor_at_creation
from logfleet.coordinators.partition import partition_for
from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

log = structlog.get_logger(__name__)

CREATE_AGAIN_S: Final = 1.0
"""How long a refused creation is not tried again."""

CreateTopic = Callable[[str, int, int, Mapping[str, str]], Awaitable[Refusal | None]]
"""name, partitions, replication factor, configs: creates a topic through the controller."""


class InternalTopic:
    """One internal topic.

    event_prefix: of the names of its log events. at_creation: the number of partitions that it
    gets, with these configs. layers: have its replication factor, if that is set. hint: what an
    operator can do if it cannot be created. create_topic: see CreateTopic. spawn: starts a task
    that lives as long as the broker.
    """

    def __init__(
        self,
        name: str,
        *,
        event_prefix: str,
        at_creation: int,
        configs: Mapping[str, str],
        layers: BrokerLayers,
        hint: str,
        create_topic: CreateTopic,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.name = name
        self._event_prefix = event_prefix
        self._at_creation = at_creation
        self._configs = configs
        self._layers = layers
        self._hint = hint
        self._create_topic = create_topic
        self._spawn = spawn
        self._creating: asyncio.Task[None] | None = None
        self._create_again_at = 0.0

    def partitions(self, image: ClusterImage) -> int:
        """How many partitions it has; 0 if it does not exist."""
        topic = image.topic(self.name)
        return 0 if topic is None else len(topic.partitions)

    def partition_of(self, key: str, image: ClusterImage) -> int:
        """The partition of a key; while the topic does not exist, that which it will be."""
        return partition_for(key, self.partitions(image) or self._at_creation)

    def want(self, image: ClusterImage) -> None:
        """Create it, with as many replicas as the image has brokers for.

        The client will ask again. A refusal is logged, and not retried for CREATE_AGAIN_S.
        """
        now = asyncio.get_running_loop().time()
        if self._creating is None and now >= self._create_again_at:
            self._create_again_at = now + CREATE_AGAIN_S
            self._creating = self._spawn(self._create(image))
            self._creating.add_done_callback(self._created)

    def _created(self, _: object) -> None:
        self._creating = None

    async def _create(self, image: ClusterImage) -> None:
        replicas = factor_at_creation(self.name, image, self._layers)
        refusal = await self._create_topic(self.name, self._at_creation, replicas, self._configs)
        if refusal is None:
            event = f"{self._event_prefix}_created"
            log.info(event, partitions=self._at_creation)
        elif refusal.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            event = f"{self._event_prefix}_not_created"
            log.error(
                event,
                error=refusal.error.name,
                reason=refusal.message,
                replication_factor=replicas,
                hint=self._hint,
            )
