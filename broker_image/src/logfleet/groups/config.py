"""The coordinator's configuration; each field names its Kafka key."""

from dataclasses import dataclass

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Timeout of the join of a member without id, which cannot send heartbeats yet.

Kafka's GroupCoordinatorConfig.CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS; not configurable there
either.
"""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Limits and timers of classic groups, with Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = 2**31 - 1
    """group.max.size"""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes; counted in UTF-16 code units, as Kafka does"""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes"""
