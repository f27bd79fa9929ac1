"""Quotas of clients and of replication, as this broker applies them."""
