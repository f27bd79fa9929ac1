"""A broker for group handlers; it coordinates one partition of the offsets topic."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from logfleet.config.broker import broker_config
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.store.loader import Subscription
from logfleet.wire.refusal import Refusal

from broker_image.tests.unit.node.coordinators.partitions_rig import LaggingPartition
from broker_image.tests.unit.node.groups.groups_rig import open_log


class GroupsRig:
    """host: the broker. created: topics that were to be created."""

    def __init__(self, host: Any, path: str) -> None:
        self.host = host
        self.path = path
        self.created: list[str] = []
        properties = {"group.initial.rebalance.delay.ms": "0"}
        self.coordinators = host.coordinators = GroupCoordinators(
            broker_config(properties),
            clock=SYSTEM_CLOCK,
            create_topic=self.create_topic,
            run_in_thread=host.run_in_thread,
            storage_failed=host.storage_failed,
            is_hosted=lambda *_: True,
        )

    async def create_topic(self, name: str, *_: object) -> Refusal | None:
        self.created.append(name)
        return None

    def know_topics(self, **topics: int) -> None:
        """Topics of the cluster, by name, with their number of partitions."""
        for name, count in topics.items():
            self.host.know_topic(name, dict.fromkeys(range(count), 1))

    def lead_offsets(self) -> LaggingPartition:
        """Lead the offsets topic's only partition; running coordinators then load its groups."""
        self.host.know_topic(OFFSETS_TOPIC, {0: 1})
        partition = LaggingPartition(open_log(self.path))
        self.host.partitions.add(partition)
        self.coordinators.runtime.led(partition)
        return partition

    def lose(self, partition: LeaderPartition) -> None:
        """Another broker leads the partition now."""
        self.host.partitions.remove(partition)
        self.coordinators.runtime.lost(partition)

    @asynccontextmanager
    async def coordinating(self):
        """Lead the offsets topic and have it loaded."""
        task = asyncio.ensure_future(self.coordinators.run(Subscription()))
        partition = self.lead_offsets()
        shards = self.coordinators.shards
        while not all(shard.is_loaded for shard in shards()):  # noqa: ASYNC110  no event for it
            await asyncio.sleep(0)
        yield partition
        task.cancel()
        await asyncio.wait([task])

    def shard(self) -> GroupShard:
        (shard,) = self.coordinators.shards()
        return shard
