"""Kafka's wire protocol: bytes to message structs and back, without input or output."""
