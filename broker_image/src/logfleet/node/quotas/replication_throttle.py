"""The replication quotas of one broker, as leader, as follower and between its log directories, and what it is told of them while it runs (KIP-73)."""

from collections.abc import Callable, Iterable

from logfleet.control.config_keys import BROKER_KEYS
from logfleet.control.configs import BrokerConfig
from logfleet.control.quota_rates import Windows
from logfleet.control.replication_quotas import ReplicationQuota, Side
from logfleet.control.topic_configs import BrokerLayers
from logfleet.io.clock import monotonic_ms
from logfleet.metadata.image import ClusterImage


class ReplicationThrottle:
    """Asked by side, LEADER or FOLLOWER: which quota holds for a replica follows from the topic's list and from its reassignment.

    quotas: by side. image: the newest, which has the topics' lists of throttled replicas.
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
        # every fetch of a follower looks here: members of an Enum are slow as keys
        self._leaders = self.quotas[Side.LEADER], self.quotas[Side.ADDED_LEADER]
        self._followers = self.quotas[Side.FOLLOWER], self.quotas[Side.ADDED_FOLLOWER]
        self._node_id = config.node_id
        self._image = image

    @property
    def between_brokers(self) -> Iterable[ReplicationQuota]:
        return [quota for side, quota in self.quotas.items() if side is not Side.LOG_DIRS]

    async def update(self, layers: BrokerLayers) -> None:
        """The rates that these values mean hold from now on."""
        for side, quota in self.quotas.items():
            rate = BROKER_KEYS[side.rate_key].parse(layers.effective(side.rate_key))
            assert isinstance(rate, int), side.rate_key
            quota.rate = rate

    def is_limited(self, side: Side) -> bool:
        """Whether anything can be throttled on that side at all: what a hot path asks first."""
        listed, of_added = self._followers if side is Side.FOLLOWER else self._leaders
        return listed.is_limited or of_added.is_limited

    def concerns(self, side: Side, topic: str, index: int) -> bool:
        """Whether a rate is set, and this broker's replica of the partition is a throttled one."""
        return self.is_limited(side) and self._quota(side, topic, index) is not None

    def _quota(self, side: Side, topic: str, index: int) -> ReplicationQuota | None:
        """The one of those that list it (KIP-73), else that of replicas that are added, if this is one or its leader."""
        known = self._image().topic(topic)
        if known is None or index >= len(known.partitions):
            return None
        listed, of_added = self._followers if side is Side.FOLLOWER else self._leaders
        if listed.is_limited and listed.concerns(known.configs, index):
            return listed
        adding = known.partitions[index].adding
        is_added = self._node_id in adding if side is Side.FOLLOWER else bool(adding)
        return of_added if of_added.is_limited and is_added else None

    def is_held_back(self, side: Side, topic: str, index: int) -> bool:
        """Whether a replica that is not in sync has to wait."""
        return bool(self.wait_ms(side, topic, index))

    def wait_ms(self, side: Side, topic: str, index: int) -> int:
        """For how long it has to wait; 0 if it has not."""
        quota = self._quota(side, topic, index) if self.is_limited(side) else None
        return 0 if quota is None else quota.throttle_ms(monotonic_ms())

    def record(
        self, side: Side, topic: str, index: int, size: int, *, in_sync: bool = False
    ) -> None:
        """Count bytes that were copied, if they are those of a throttled replica; what replicas copy that are in sync counts where they are listed, as with Kafka."""
        quota = self._quota(side, topic, index) if self.is_limited(side) else None
        if quota is not None and not (in_sync and quota.side is Side.ADDED_LEADER):
            quota.record(size, monotonic_ms())

    def moved(self, size: int) -> None:
        """Count bytes that were copied to another log directory."""
        self.quotas[Side.LOG_DIRS].record(size, monotonic_ms())

    def move_wait_ms(self) -> int:
        """For how long copies to other log directories have to wait; 0 if they have not."""
        return self.quotas[Side.LOG_DIRS].throttle_ms(monotonic_ms())
