"""Classic groups (KIP-134, 345, 394, 429): members join, and their leader assigns."""
