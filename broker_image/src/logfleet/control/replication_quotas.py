"""How fast throttled replicas are copied at most (KIP-73): which replicas those are, and whether a rate is used up.

Kafka's ReplicationQuotaManager and TopicConfigHandler.parseThrottledPartitions. A broker has two such quotas, one as leader and one as
follower, and a third for copies between its own log directories (KIP-113), of which all are throttled. One more is for what a follower copies
of replicas that reassignments add: nobody has to make a list of them, nor take it away afterwards (as KIP-542 proposes). What is on a list of KIP-73 is throttled by that. A follower takes no more than BURST_MS' worth at once, where Kafka lets through what a window allows in its first moment: bursts are what producers feel. Times are milliseconds of one clock that never goes back.
"""

import math
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from logfleet.control.config_keys import TOPIC_KEYS, ConfigError
from logfleet.control.quota_rates import RateMeter, Windows

UNLIMITED: Final = 2**63 - 1
"""The rate, in bytes a second, by which nothing is throttled: the default of both keys."""
_ALL: Final = ("*",)
BURST_MS: Final = 50
"""For so long a follower may be ahead of its rate."""
DEBT_MS: Final = 1_000
"""For so long at most it makes up for what it took above its rate: in-sync replicas, who are never held back, count as well."""
SLICE: Final = 64 * 1024
"""Bytes of a partition that a throttled follower asks for at a time; with the default of 1 MiB, and 10 MiB for an answer, producers' p99 was twice as high during a move."""
ANSWER: Final = 2 * SLICE
"""Bytes of an answer that holds such a partition."""


class Side(Enum):
    """On which side of which copies bytes are counted.

    label: as metrics have it. rate_key: of brokers, bytes per second. replicas_key: of topics, `partition:broker,...` or `*`; None where all count.
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


@lru_cache(maxsize=256)
def _partitions_on(key: str, text: str, broker_id: int) -> frozenset[int] | None:
    """Partitions whose replica on that broker is named, None for all; text: as the topic has it. What nobody could obey counts as not set."""
    try:
        replicas = TOPIC_KEYS[key].parse(text)
    except ConfigError:
        return frozenset()
    assert isinstance(replicas, tuple), f"{key} is a list"
    if replicas == _ALL:
        return None
    pairs = (each.split(":") for each in replicas)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    """One side's rate on one broker. rate: bytes per second, UNLIMITED for none. factor: share of it that is in force (`replication.adaptive_throttle`). bytes: copied of throttled replicas while there was a rate."""

    def __init__(self, side: Side, broker_id: int, windows: Windows) -> None:
        self.side = side
        self.rate = UNLIMITED
        self.factor = 1.0
        self._paid_ms = 0.0
        self.bytes = 0
        self._broker_id = broker_id
        self._windows = windows
        self._meter = RateMeter(windows)

    @property
    def is_limited(self) -> bool:
        """Whether anything can be throttled at all: what a hot path asks first."""
        return self.rate != UNLIMITED

    def concerns(self, configs: Mapping[str, str], index: int) -> bool:
        """Whether this broker's replica of a partition is a throttled one. configs: those set for its topic."""
        key = self.side.replicas_key
        if key is None:
            return True
        text = configs.get(key)
        if text is None:
            return False
        partitions = _partitions_on(key, text, self._broker_id)
        return partitions is None or index in partitions

    def record(self, size: int, now_ms: int) -> None:
        """So many bytes of throttled replicas were copied, whether or not they are in sync."""
        self.bytes += size
        self._meter.record(size, now_ms)
        if self.is_limited and self.rate > 0:
            owed_ms = max(now_ms, self._paid_ms) + 1_000 * size / self.in_force
            self._paid_ms = min(owed_ms, now_ms + DEBT_MS)

    def throttle_ms(self, now_ms: int) -> int:
        """How long replicas that are not in sync have to wait; 0 if the rate is not exceeded. By a rate of 0, for a window each time."""
        if not self.is_limited:
            return 0
        if self.rate <= 0:
            return self._windows.length_ms
        ahead_ms = 0.0 if self.side is Side.LEADER else self._paid_ms - now_ms - BURST_MS
        return max(self._meter.throttle_ms(self.in_force, now_ms), math.ceil(ahead_ms), 0)

    @property
    def in_force(self) -> float:
        """Bytes per second."""
        return self.rate * self.factor
