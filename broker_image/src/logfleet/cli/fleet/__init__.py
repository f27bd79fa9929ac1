"""Commands about the fleet as a whole: its brokers, their decisions, moves between them."""
