"""Rate limits for copying replicas (KIP-73): which replicas are throttled, and by how much.

Kafka's ReplicationQuotaManager and TopicConfigHandler.parseThrottledPartitions. A broker has one
quota as leader, one as follower, and a third for copies between its log directories (KIP-113),
which are all throttled. A fourth limits what a follower copies for replicas that reassignments add:
nobody has to list them, nor delete the list afterwards (as KIP-542 proposes); replicas on a list of
KIP-73 are throttled by that. A follower takes at most BURST_MS' worth at once, because producers
feel bursts; Kafka allows a whole window's worth in its first moment. Times are milliseconds of a
monotonic clock.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from logfleet.config.keys import TOPIC_KEYS, ConfigError
from logfleet.config.throttle_keys import Side
from logfleet.quotas.rates import RateMeter, Windows

UNLIMITED: Final = 2**63 - 1
"""Bytes a second that throttle nothing: the default of both keys."""
_ALL: Final = ("*",)
BURST_MS: Final = 50
"""Milliseconds that a follower may be ahead of its rate."""
DEBT_MS: Final = 1_000
"""At most this many milliseconds' worth above the rate are made up for.

In-sync replicas count as well though they are never held back.
"""
SLICE: Final = 64 * 1024
"""Bytes of a partition that a throttled follower requests at a time.

With the default of 1 MiB, and 10 MiB per response, producers' p99 was twice as high during a move.
"""
ANSWER: Final = 2 * SLICE
"""Bytes of a response that has such a partition."""


@lru_cache(maxsize=256)
def _partitions_on(key: str, text: str, broker_id: int) -> frozenset[int] | None:
    """Partitions whose replica on that broker is named, None for all.

    text: the topic's value. An invalid one counts as not set.
    """
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
    """One side's rate on one broker.

    rate: bytes per second, UNLIMITED for none. factor: share of it that is in force
    (`quotas.adaptive_throttle`). bytes: copied of throttled replicas while there was a rate.
    """

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
        """Whether anything can be throttled at all: the first check of a hot path."""
        return self.rate != UNLIMITED

    def concerns(self, configs: Mapping[str, str], index: int) -> bool:
        """Whether this broker's replica of a partition is throttled.

        configs: those set for its topic.
        """
        key = self.side.replicas_key
        if key is None:
            return True
        text = configs.get(key)
        if text is None:
            return False
        partitions = _partitions_on(key, text, self._broker_id)
        return partitions is None or index in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Record bytes copied of throttled replicas, whether in sync or not."""
        self.bytes += size
        self._meter.record(size, now_ms)
        if self.is_limited and self.rate > 0:
            owed_ms = max(now_ms, self._paid_ms) + 1_000 * size / self.in_force
            self._paid_ms = min(owed_ms, now_ms + DEBT_MS)

    def throttle_ms(self, now_ms: int) -> int:
        """Milliseconds that replicas not in sync must wait; 0 if the rate is not exceeded.

        A rate of 0 makes them wait for one window each time.
        """
        if not self.is_limited:
            return 0
        if self.rate <= 0:
            return self._windows.length_ms
        ahead_ms = 0.0 if self.side is Side.LEADER else self._paid_ms - now_ms - BURST_MS
        return max(self._meter.throttle_ms(self.in_force, now_ms), math.ceil(ahead_ms), 0)

    @property
    def in_force(self) -> float:
        """The rate now in force, in bytes per second."""
        return self.rate * self.factor
