"""Quotas of clients and of replication: rates, who has which limit, what exceeds it."""
