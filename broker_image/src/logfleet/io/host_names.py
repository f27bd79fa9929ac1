"""Looks up the addresses of hosts, and remembers them for when name servers do not respond.

A zone that loses power takes its name servers with it. On Kubernetes half of all queries then get
no response until the node is found to be gone, 40 s later; getaddrinfo asks again after 5 s
(resolv.conf), from the same port, so that kube-proxy sends the query to the same server. A follower
that has to reconnect to its leader must not wait for that: a former address is nearly always still
right. Java keeps addresses for 30 s (networkaddress.cache.ttl), and former ones for a configurable
time (networkaddress.cache.stale.ttl).
"""

import asyncio
import ipaddress
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeVar

PATIENCE_S: Final = 0.5
"""Time to wait for a response if there is a former address; a Kubernetes name server needs
some milliseconds."""
SECOND_LOOKUP_S: Final = 1.0
"""A lookup that takes longer has probably lost its query: a second one asks from another port."""
LOOKUPS_MAX: Final = 4
"""Limit of concurrent lookups of one host."""
_UNKNOWN: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})
"""Errors that mean: the name server responded that there is no such host."""

T = TypeVar("T")
Lookup = Callable[[str], list[str]]
"""Addresses of a host name. Blocks. Raises OSError, UnicodeError for an invalid name."""


def look_up(host: str) -> list[str]:
    """All addresses of a host, in the order in which to try them (getaddrinfo, RFC 6724)."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_text(info[4]) for info in infos))


@dataclass(slots=True)
class _Question:
    """Concurrent lookups of one host; the first success is the answer for all callers.

    started, running: how many; last_s: when the last one began (time.monotonic).
    """

    answer: Future[list[str]] = field(default_factory=Future)
    started: int = 0
    running: int = 0
    last_s: float = 0.0


class HostNames:
    """Looks names up in daemon threads; usable from any number of loops."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._lock = threading.Lock()
        self._former: dict[str, list[str]] = {}
        self._pending: dict[str, _Question] = {}

    async def first(
        self, host: str, connect: Callable[[str], Awaitable[T]], *, only_current: bool = False
    ) -> T:
        """Call `connect` with each address until one raises no OSError, and return its result.

        Raises as `addresses`; of the failures a refused connection, else the first.
        """
        failures: list[OSError] = []
        for address in await self.addresses(host, only_current=only_current):
            try:
                return await connect(address)
            except OSError as error:
                failures.append(error)
        raise next(
            (each for each in failures if isinstance(each, ConnectionRefusedError)), failures[0]
        )

    async def addresses(self, host: str, *, only_current: bool = False) -> list[str]:
        """At least one address. only_current: no former ones.

        Raises OSError if the host does not exist, or if nobody responds and there is no former
        address; UnicodeError for an invalid name.
        """
        if _is_address(host):
            return [host]
        former = None if only_current else self._former.get(host)
        while True:
            answer = asyncio.wrap_future(self._look_up(host))
            try:
                async with asyncio.timeout(SECOND_LOOKUP_S if former is None else PATIENCE_S):
                    return await answer
            except TimeoutError:
                if former is not None:
                    return former
            except OSError as error:
                if former is None or _is_unknown(error):
                    raise
                return former

    def _look_up(self, host: str) -> Future[list[str]]:
        """The answer to come, with one more lookup if that may help.

        Raises OSError if no thread can be started.
        """
        with self._lock:
            question = self._pending.setdefault(host, _Question())
            now_s = time.monotonic()
            if question.started == 0:
                # a caller's cancellation must not stop the others
                question.answer.set_running_or_notify_cancel()
                self._begin(host, question, now_s)
            elif now_s - question.last_s >= SECOND_LOOKUP_S and question.started < LOOKUPS_MAX:
                self._begin(host, question, now_s)
            return question.answer

    def _begin(self, host: str, question: _Question, now_s: float) -> None:
        question.started += 1
        question.running += 1
        question.last_s = now_s
        try:
            threading.Thread(target=self._run, args=(host, question), daemon=True).start()
        except RuntimeError as error:  # no more threads can be started
            self._failed(host, question, OSError(str(error)))

    def _run(self, host: str, question: _Question) -> None:
        try:
            found = self._lookup(host)
        except Exception as error:  # noqa: BLE001 - the callers get it
            with self._lock:
                self._failed(host, question, error)
        else:
            with self._lock:
                question.running -= 1
                if not question.answer.done():
                    self._former[host] = found
                    del self._pending[host]
                    question.answer.set_result(found)

    def _failed(self, host: str, question: _Question, error: Exception) -> None:
        """A lookup failed. Other lookups go on, unless it is certain that there is no such host."""
        question.running -= 1
        if question.answer.done() or (question.running and not _is_unknown(error)):
            return
        if _is_unknown(error):
            self._former.pop(host, None)
        del self._pending[host]
        question.answer.set_exception(error)


HOST_NAMES: Final = HostNames()
"""The instance that all connections of this process share."""


def _text(address: tuple[object, ...]) -> str:
    """The address as text; with the scope of a link-local one, which belongs to it (RFC 4007)."""
    host, scope = str(address[0]), address[3] if len(address) > 3 else 0
    return f"{host}%{scope}" if scope and "%" not in host else host


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, socket.gaierror) and error.errno in _UNKNOWN


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
