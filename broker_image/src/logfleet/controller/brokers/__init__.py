"""What the controller decides about brokers: which are active, fenced, or may leave."""
