"""Keys that throttle the copying of replicas (KIP-73)."""

from enum import Enum


class Side(Enum):
    """Which copies a quota counts, and on which side.

    label: of metrics. rate_key: of brokers, bytes per second. replicas_key: of topics,
    `partition:broker,...` or `*`; None if all replicas count.
    """

    LEADER = "leader", "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
    FOLLOWER = (
        "follower",
        "follower.replication.throttled.rate",
        "follower.replication.throttled.replicas",
    )
    LOG_DIRS = "log_dirs", "replica.alter.log.dirs.io.max.bytes.per.second", None
    ADDED = "added", "logfleet.reassignment.throttled.rate", None

    def __init__(self, label: str, rate_key: str, replicas_key: str | None) -> None:
        self.label = label
        self.rate_key = rate_key
        self.replicas_key = replicas_key
