"""The coordinator of transactions (KIP-98, KIP-360, KIP-890), without clock, log and network."""
