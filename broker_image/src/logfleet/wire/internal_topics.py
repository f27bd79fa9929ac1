"""Topics that Kafka's own tools treat as internal."""

METADATA_TOPIC = "__cluster_metadata"
"""The topic of Kafka's own metadata log; tools treat a topic of that name as such."""
