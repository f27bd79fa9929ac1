"""What a broker measures: histograms, the table of metrics, Prometheus' text format. Pure."""
