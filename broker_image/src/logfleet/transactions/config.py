"""The coordinator's configuration; each field names its Kafka key."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Limits and intervals of transactions, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    id_expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms"""
    is_two_phase_commit_enabled: bool = False
    """transaction.two.phase.commit.enable"""
