"""The asyncio Kafka client of this project, on logfleet.wire."""
