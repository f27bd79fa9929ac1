"""The metrics that a broker exports to Prometheus.

The hot path counts in plain attributes of the objects that it works on; a scrape reads them here.
`logfleet.telemetry.table` lists and explains the metrics.
"""
