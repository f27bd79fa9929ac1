"""Sockets: listeners, connections, frames, sending, turns, connection limits.

Imports nothing of logs.
"""
