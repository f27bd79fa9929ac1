"""The replication quotas of one broker, and their use while it runs (KIP-73).

As leader, as follower, and between its log directories.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from logfleet.config.broker import BrokerConfig
from logfleet.config.keys import BROKER_KEYS
from logfleet.config.throttle_keys import Side
from logfleet.config.topic import BrokerLayers
from logfleet.io.clock import monotonic_ms
from logfleet.metadata.image import ClusterImage
from logfleet.quotas.rates import Windows
from logfleet.quotas.replication_quotas import ReplicationQuota
from logfleet.quotas.yielding_throttle import YieldingThrottle
from logfleet.telemetry.request_stats import RequestStats

Spawn = Callable[[str, Coroutine[Any, Any, None]], None]
"""Runs something for as long as the broker lives."""


class ReplicationThrottle:
    """The replication quotas of one broker, queried by side, LEADER or FOLLOWER.

    The topic's list and its reassignment determine which quota holds for a replica. quotas: by
    side. image: the newest, which has the topics' lists of throttled replicas.
    """

    def __init__(self, config: BrokerConfig, image: Callable[[], ClusterImage]) -> None:
        windows = Windows(
            config.replication_quota_window_num,
            1_000 * config.replication_quota_window_size_seconds,
        )
        moves = Windows(
            config.alter_log_dirs_replication_quota_window_num,
            1_000 * config.alter_log_dirs_replication_quota_window_size_seconds,
        )
        self.quotas = {
            side: ReplicationQuota(
                side, config.node_id, moves if side is Side.LOG_DIRS else windows
            )
            for side in Side
        }
        # every fetch of a follower reads these: members of an Enum are slow as keys
        self._leader, self._follower = self.quotas[Side.LEADER], self.quotas[Side.FOLLOWER]
        self._added = self.quotas[Side.ADDED]
        self._node_id = config.node_id
        self._yields = config.logfleet_replication_throttle_yields
        self._image = image

    @property
    def between_brokers(self) -> Sequence[ReplicationQuota]:
        return (self._leader, self._follower, self._added)

    def start(self, spawn: Spawn, produce: RequestStats) -> None:
        """Give way to producers from now on, if logfleet.replication.throttle.yields.

        produce: the times of Produce requests.
        """
        if self._yields:
            yielding = YieldingThrottle(self.between_brokers, produce)
            spawn("replication-throttle", yielding.run())

    async def update(self, layers: BrokerLayers) -> None:
        """Apply the rates of this configuration from now on."""
        for side, quota in self.quotas.items():
            rate = BROKER_KEYS[side.rate_key].parse(layers.effective_value(side.rate_key))
            assert isinstance(rate, int), side.rate_key
            quota.rate = rate

    def is_limited(self, side: Side) -> bool:
        """Whether anything can be throttled on that side at all: a fast test for hot paths."""
        if side is Side.LEADER:
            return self._leader.is_limited
        return self._follower.is_limited or self._added.is_limited

    def concerns(self, side: Side, topic: str, index: int) -> bool:
        """Whether a rate is set, and this broker's replica of the partition is throttled."""
        return self._quota(side, topic, index) is not None

    def _quota(self, side: Side, topic: str, index: int) -> ReplicationQuota | None:
        """The quota that lists the replica (KIP-73), else that of added replicas, if it is one."""
        if not self.is_limited(side):
            return None
        found = self._image().topic(topic)
        if found is None or index >= len(found.partitions):
            return None
        listed = self._leader if side is Side.LEADER else self._follower
        if listed.is_limited and listed.concerns(found.configs, index):
            return listed
        if side is Side.FOLLOWER and self._added.is_limited:
            return self._added if self._node_id in found.partitions[index].adding else None
        return None

    def is_held_back(self, side: Side, topic: str, index: int) -> bool:
        """Whether a replica that is not in sync has to wait."""
        return bool(self.wait_ms(side, topic, index))

    def wait_ms(self, side: Side, topic: str, index: int) -> int:
        """Time that the replica has to wait, or 0."""
        quota = self._quota(side, topic, index)
        return 0 if quota is None else quota.throttle_ms(monotonic_ms())

    def record(
        self, side: Side, topic: str, index: int, size: int, *, caught_up: float = 1.0
    ) -> None:
        """Count bytes that were copied, if they are those of a throttled replica.

        caught_up: the share of them that reduced the replica's lag. For an added replica only that
        share counts: so it gets in sync however much is written to it meanwhile.
        """
        quota = self._quota(side, topic, index)
        if quota is not None:
            counted = int(size * caught_up) if quota is self._added else size
            quota.record(counted, monotonic_ms())

    def moved(self, size: int) -> None:
        """Count bytes that were copied to another log directory."""
        self.quotas[Side.LOG_DIRS].record(size, monotonic_ms())

    def move_wait_ms(self) -> int:
        """Time that copies to other log directories have to wait, or 0."""
        return self.quotas[Side.LOG_DIRS].throttle_ms(monotonic_ms())
