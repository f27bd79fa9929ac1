"""The rules of the consumer group coordinator.

It decides records and responses, and applies records.
"""
