"""What clients may use of this broker: measuring, throttling, and the limits that its listeners obey."""
