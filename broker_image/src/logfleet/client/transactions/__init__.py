"""Transactions of the client: writing in them, and reading only what they have committed."""
