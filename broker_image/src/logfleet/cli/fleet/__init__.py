"""Commands about the fleet as a whole: its brokers, what they decided, what may be done to them, what is moved between them."""
