"""Elects, where no replica is sure to hold every record, the one with the longest log.

These elections run beside the term's other work: nothing waits while brokers are asked
(`replication.longest_log` has the rule).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.fencing import newcomers
from logfleet.controller.changes.election_writes import (
    LogEndsByPartition,
    PartitionId,
    ReplicasToAsk,
    election_steps,
    replicas_to_ask,
)
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.log_ends import QueryLogEnds
from logfleet.controller.running.term import Operation, Term, TermDecision
from logfleet.io.slices import Slices
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.packing import Step
from logfleet.store.loader import MetadataLoader

log = structlog.get_logger(__name__)

AGAIN_S: Final = 1.0
"""Pause before brokers are asked again: a needed one did not answer, or the cluster changed."""
CAUSE: Final = "no replica is sure to hold every record, and its log reaches furthest"


class LongestLogs:
    """The elections of one term. static: server.properties of the controller's broker."""

    def __init__(
        self, term: Term, follower: MetadataLoader, static: Mapping[str, str], query: QueryLogEnds
    ) -> None:
        self._term = term
        self._follower = follower
        self._static = static
        self._query = query
        self._leaderless: set[bytes] = set()
        self._slices = Slices()

    async def run(self) -> None:
        """Work until cancelled. Raises NotControllerError."""
        subscription = self._follower.subscribe()
        pause_s: float | None = None
        try:
            while True:
                image, changes = await subscription.next_within(pause_s)
                await self._track_leaderless(image, changes)
                asked = self._to_query(image)
                pause_s = AGAIN_S if asked else None
                if asked:
                    log.info("log_ends_asked", partitions=len(asked), epoch=self._term.epoch)
                    answered = await self._query(image, asked)
                    await self._term.submit(_election(answered))
        finally:
            self._follower.unsubscribe(subscription)

    async def _track_leaderless(self, image: ClusterImage, changes: Changes) -> None:
        """Keep track of topics that have partitions without a leader."""
        changed = {topic.id for topic in image.topics()} if changes.everything else changes.topics
        for topic_id in changed:
            topic = image.topic_by_id(topic_id)
            if topic is not None and not all(each.has_leader for each in topic.partitions):
                self._leaderless.add(topic_id)
            else:
                self._leaderless.discard(topic_id)
            await self._slices.pause_if_due()

    def _to_query(self, image: ClusterImage) -> ReplicasToAsk:
        """The replicas to ask; none while newcomers, whose logs may be longer, are not admitted."""
        found: dict[PartitionId, Sequence[Broker]] = {}
        if not newcomers(image):
            layers = BrokerLayers(self._static, image.configs_of_broker(None).values)
            for topic_id in self._leaderless:
                topic = image.topic_by_id(topic_id)
                if topic is not None:
                    found.update(replicas_to_ask(image, topic, layers))
        return found


def _election(answered: LogEndsByPartition) -> Operation[None]:
    indexes: dict[bytes, list[int]] = {}
    for topic_id, index in answered:
        indexes.setdefault(topic_id, []).append(index)

    def decide(image: ClusterImage, epoch: int, layers: BrokerLayers) -> TermDecision[None]:
        steps: list[Step] = []
        for topic_id, some in indexes.items():
            topic = image.topic_by_id(topic_id)
            if topic is not None and not newcomers(image):
                steps += election_steps(image, topic, layers, indexes=some, answered=answered)
        return TermDecision(pack(epoch, steps), None, CAUSE, in_any_order=True)

    return decide
