"""Asks brokers for what checks need."""

from logfleet.checks.gathering.fleet import AdminAnswers, gather_snapshot

__all__ = ["AdminAnswers", "gather_snapshot"]
