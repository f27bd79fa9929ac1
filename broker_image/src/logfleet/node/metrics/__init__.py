"""What Prometheus sees of a broker.

The hot path counts in plain attributes of the objects that it works on; they are read here when a scrape comes. What is told,
and what it means, stands in `logfleet.telemetry.table`.
"""
