"""The partitions that a broker hosts, their logs and roles, as the image assigns them."""
