"""Rebalance resources: proposed, approved, carried out by the brokers a few moves at a time, told in the status."""
