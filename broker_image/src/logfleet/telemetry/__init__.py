"""Measurements of a broker: histograms, the table of metrics, Prometheus' text format. Pure."""
