"""Produce: one batch per partition, plain or in a transaction."""
