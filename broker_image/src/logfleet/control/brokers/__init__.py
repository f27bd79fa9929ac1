"""What the controller makes of brokers: who is let in, who is fenced, who may leave."""
