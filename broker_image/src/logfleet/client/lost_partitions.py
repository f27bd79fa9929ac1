"""Lost partitions: without a leader though all their brokers run.

Their records are gone, unless somebody puts a missing disk back.
"""

from collections.abc import Iterable

import msgspec

from logfleet.client.admin import Admin
from logfleet.client.metadata import NO_LEADER, Topic
from logfleet.client.offsets import TopicPartition


class LostPartition(msgspec.Struct, frozen=True):
    """replicas: ids of the brokers that had it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


async def find_lost(admin: Admin, topics: Iterable[Topic]) -> list[LostPartition]:
    """The lost ones of these topics' partitions, sorted.

    topics: just fetched. Raises ClientError.
    """
    found = await admin.describe_cluster(include_fenced=True)
    active = {node.id for node in found.brokers} - set(found.fenced)
    return sorted(
        (
            LostPartition(topic.name, each.index, each.replicas)
            for topic in topics
            for each in topic.partitions
            if each.leader == NO_LEADER and active.issuperset(each.replicas)
        ),
        key=lambda lost: (lost.topic, lost.partition),
    )
