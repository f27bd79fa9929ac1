"""Lets a key that waits for the brokers or the etcd of its fleet leave its place to another key.

A pass over a fleet that nobody reaches waits for up to 45 s and comes back soon after. If such waits kept their places
among the AT_ONCE_MAX of the worker, a few such fleets would delay all others.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

# Each has a connection: well below the 1,024 descriptors that a process may have by default.
WAITING_MAX: Final = 400


class Waiting:
    """The keys of one worker that wait now. count: how many. began: called when one more does."""

    def __init__(self, began: Callable[[], None]) -> None:
        self.count = 0
        self._began = began

    @contextmanager
    def counted(self) -> Iterator[None]:
        """For the work on one key: its calls of `elsewhere` are counted here."""
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
"""None outside of a worker, and within `elsewhere`: a wait counts once."""


@contextmanager
def elsewhere() -> Iterator[None]:
    """For as long as an answer is awaited that is not the API server's; nothing else may be done within.

    Afterwards the key goes on at once. What is left of its pass is short, and no other key begins until fewer than
    AT_ONCE_MAX are worked on. Above WAITING_MAX the place is kept.
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
