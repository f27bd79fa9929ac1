"""A coordinator loop with what it asks of its broker, for tests."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.clock import SYSTEM_CLOCK, Clock
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.store.loader import Subscription
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal


class Rig:
    def __init__(self, clock: Clock = SYSTEM_CLOCK, **config: str) -> None:
        self.created: list[tuple[str, int, int, Mapping[str, str]]] = []
        self.refusal: Refusal | None = None
        self.failures: list[tuple[LeaderPartition, OSError]] = []
        self.subscription = Subscription()
        self.reads: list[asyncio.Event] = []
        self.coordinators = GroupCoordinators(
            broker_config({name.replace("_", "."): value for name, value in config.items()}),
            clock=clock,
            create_topic=self.create_topic,
            run_in_thread=self.run_in_thread,
            storage_failed=lambda partition, error: self.failures.append((partition, error)),
            is_hosted=lambda *_: True,
        )
        self.loop = self.coordinators.runtime
        self.topic = self.coordinators.topic

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> Refusal | None:
        self.created.append((name, partitions, replication_factor, configs))
        return self.refusal

    async def run_in_thread(self, read: Callable[[], bytes]) -> bytes:
        for gate in self.reads:
            await gate.wait()
        return read()

    @asynccontextmanager
    async def running(self):
        task = asyncio.ensure_future(self.coordinators.run(self.subscription))
        yield task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def shard(self) -> GroupShard | ErrorCode:
        return self.loop.shard_of("g", 1)


def shard_of(rig: Rig) -> GroupShard:
    shard = rig.shard()
    assert isinstance(shard, GroupShard)
    return shard
