"""Work on a whole fleet through Kafka's admin APIs, as the command line and the operator do it."""
