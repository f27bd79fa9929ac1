"""What a broker measures of itself, and how that is told: histograms, the table of metrics, Prometheus' text format. Pure."""
