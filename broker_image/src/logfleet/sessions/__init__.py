"""Fetch sessions (KIP-227): what a broker remembers of a reader between two requests, and of how many readers."""
