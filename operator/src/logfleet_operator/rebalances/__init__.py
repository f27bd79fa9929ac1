"""Rebalance resources: proposed, approved, carried out by the brokers, reported in the status."""
