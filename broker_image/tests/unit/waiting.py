"""The type of the fixture `until`."""

from collections.abc import Awaitable, Callable

Until = Callable[[Callable[[], object]], Awaitable[None]]
"""Waits until the condition holds; only the loop's own work can bring it about."""
