"""Lets a key that waits for brokers or etcd give its place in the worker to another key.

A pass over an unreachable fleet waits for up to 45 s and comes back soon after. If such waits kept
their places among the worker's AT_ONCE_MAX, a few such fleets would delay all others.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

# Each wait has a connection: stay well below the 1,024 descriptors that a process has by default.
WAITING_MAX: Final = 400


class Waiting:
    """Counts the keys of one worker that wait now. began: called when a wait begins."""

    def __init__(self, began: Callable[[], None]) -> None:
        self.count = 0
        self._began = began

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the calls of `waiting_for_fleet` during the work on one key."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self.count += 1
        self._began()
        try:
            yield
        finally:
            self.count -= 1


_CURRENT: ContextVar[Waiting | None] = ContextVar("waiting", default=None)
"""None outside of a worker, and within `waiting_for_fleet`, so that a nested wait counts once."""


@contextmanager
def waiting_for_fleet() -> Iterator[None]:
    """Wrap a wait for anything but the API server; nothing else may be done within.

    Afterwards the key goes on at once: the rest of its pass is short, and no other key begins until
    fewer than AT_ONCE_MAX are worked on. With WAITING_MAX waits already, the key keeps its place.
    """
    waiting = _CURRENT.get()
    if waiting is None or waiting.count >= WAITING_MAX:
        yield
        return
    token = _CURRENT.set(None)
    try:
        with waiting.one_more():
            yield
    finally:
        _CURRENT.reset(token)
