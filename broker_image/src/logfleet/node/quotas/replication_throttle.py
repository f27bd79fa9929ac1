"""The replication quotas of one broker, as leader, as follower and between its log directories, and what it is told of them while it runs (KIP-73)."""

from collections.abc import Callable

from logfleet.control.config_keys import BROKER_KEYS
from logfleet.control.configs import BrokerConfig
from logfleet.control.quota_rates import Windows
from logfleet.control.replication_quotas import ReplicationQuota, Side
from logfleet.control.topic_configs import BrokerLayers
from logfleet.io.clock import monotonic_ms
from logfleet.metadata.image import ClusterImage


class ReplicationThrottle:
    """leader, follower, log_dirs: the quotas. image: the newest, which has the topics' lists of throttled replicas."""

    def __init__(self, config: BrokerConfig, image: Callable[[], ClusterImage]) -> None:
        windows = Windows(
            config.replication_quota_window_num,
            1_000 * config.replication_quota_window_size_seconds,
        )
        self.leader = ReplicationQuota(Side.LEADER, config.node_id, windows)
        self.follower = ReplicationQuota(Side.FOLLOWER, config.node_id, windows)
        moves = Windows(
            config.alter_log_dirs_replication_quota_window_num,
            1_000 * config.alter_log_dirs_replication_quota_window_size_seconds,
        )
        self.log_dirs = ReplicationQuota(Side.LOG_DIRS, config.node_id, moves)
        self._image = image

    async def update(self, layers: BrokerLayers) -> None:
        """The rates that these values mean hold from now on."""
        for quota in (self.leader, self.follower, self.log_dirs):
            rate = BROKER_KEYS[quota.side.rate_key].parse(layers.effective(quota.side.rate_key))
            assert isinstance(rate, int), quota.side.rate_key
            quota.rate = rate

    def concerns(self, quota: ReplicationQuota, topic: str, index: int) -> bool:
        """Whether a rate is set, and this broker's replica of the partition is a throttled one."""
        if not quota.is_limited:
            return False
        known = self._image().topic(topic)
        return known is not None and quota.concerns(known.configs, index)

    def is_held_back(self, quota: ReplicationQuota, topic: str, index: int) -> bool:
        """Whether a replica that is not in sync has to wait."""
        return bool(self.wait_ms(quota, topic, index))

    def wait_ms(self, quota: ReplicationQuota, topic: str, index: int) -> int:
        """For how long it has to wait; 0 if it has not."""
        if not self.concerns(quota, topic, index):
            return 0
        return quota.throttle_ms(monotonic_ms())

    def moved(self, size: int) -> None:
        """Count bytes that were copied to another log directory."""
        self.log_dirs.record(size, monotonic_ms())

    def move_wait_ms(self) -> int:
        """For how long copies to other log directories have to wait; 0 if they have not."""
        return self.log_dirs.throttle_ms(monotonic_ms())

    def record(self, quota: ReplicationQuota, topic: str, index: int, size: int) -> None:
        """Count bytes that were copied, if they are those of a throttled replica."""
        if self.concerns(quota, topic, index):
            quota.record(size, monotonic_ms())
