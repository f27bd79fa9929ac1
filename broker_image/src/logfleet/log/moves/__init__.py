"""Moves of logs between the log directories of one broker (KIP-113)."""
