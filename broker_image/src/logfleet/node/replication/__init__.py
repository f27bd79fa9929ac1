"""Replication: fetching what other brokers lead, and writing who is in sync with what this one leads."""
