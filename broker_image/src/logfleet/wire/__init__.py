"""Kafka's wire protocol: bytes to message structs and back, without I/O."""
