"""Fetch sessions (KIP-227): what a broker caches of a reader between two requests."""
