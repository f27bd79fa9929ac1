"""Sockets: listeners, connections, frames, sending, turns, limits of connections. Knows no log."""
