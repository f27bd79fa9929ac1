"""The controller: what it decides and writes for all brokers, and its term on one of them."""
