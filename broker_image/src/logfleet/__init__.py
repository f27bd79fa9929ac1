"""Logfleet: a fleet of log brokers for Kubernetes that speaks Kafka's wire protocol."""

__version__ = "0.1.0"
