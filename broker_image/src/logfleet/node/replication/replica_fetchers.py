"""Keeps one fetcher for each broker that leads a partition of which this broker has a replica."""

from collections.abc import Callable, Coroutine
from typing import Any

from logfleet.config.broker import BrokerConfig
from logfleet.log.recovery.truncater import Truncater
from logfleet.metadata.image import Broker
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.node.partitions.traffic import Traffic
from logfleet.node.replication.replica_fetcher import ReplicaFetcher
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions
from logfleet.types import NO_BROKER_EPOCH, BrokerEpoch


class ReplicaFetchers:
    """All fetchers, and what each needs of the broker it runs in (`follower_host.FollowerHost`).

    spawn: runs a task by that name for as long as the broker lives. storage_failed: called when a
    log could not be written. replicated: counts the bytes that are copied.
    """

    def __init__(
        self,
        config: BrokerConfig,
        following: Following,
        truncater: Truncater,
        spawn: Callable[[str, Coroutine[Any, Any, None]], None],
        *,
        metadata: MetadataLoader,
        replicated: Traffic,
        throttle: ReplicationThrottle,
        decisions: Decisions,
        storage_failed: Callable[[Replica, OSError], None],
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.decisions = decisions
        self.replicated = replicated
        self.throttle = throttle
        self.truncater = truncater
        self.storage_failed = storage_failed
        self._metadata = metadata
        self._following = following
        self._spawn = spawn
        self._fetchers: dict[int, ReplicaFetcher] = {}
        following.on_followed.append(self._follow)
        following.on_unfollowed.append(self._unfollow)

    def _follow(self, partition: FollowerPartition) -> None:
        leader = partition.leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(self, leader)
            self._spawn(f"fetcher of broker {leader}", fetcher.run())
        fetcher.add(partition)

    def _unfollow(self, partition: FollowerPartition) -> None:
        """A fetcher without partitions stays: its leader may lead again soon.

        It costs one connection.
        """
        self._fetchers[partition.leader].remove(partition)

    # --- for fetchers

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The broker epoch of this registration; -1 if there is none, and nothing is followed."""
        epoch = self._following.broker_epoch
        return NO_BROKER_EPOCH if epoch is None else epoch

    def broker(self, broker_id: int) -> Broker | None:
        return self._metadata.image.brokers.get(broker_id)
