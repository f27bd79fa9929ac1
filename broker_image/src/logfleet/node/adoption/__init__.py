"""What `logfleet adopt` does: takes over the data of a single Apache Kafka broker."""
