"""What a broker hosts: its partitions, their logs and roles, as the image assigns them."""
