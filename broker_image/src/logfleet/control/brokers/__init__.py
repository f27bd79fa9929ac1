"""What the controller decides about brokers: which are active, which are fenced, which may leave."""
