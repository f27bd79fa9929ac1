"""Idempotent producers of a partition: their state, its snapshots on disk."""
