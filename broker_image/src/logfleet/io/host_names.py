"""Addresses of hosts by their names, and what they were before where name servers do not answer.

A zone that loses its power takes its name servers along. On Kubernetes half of all questions go unanswered then until the node is found to be gone, 40 s later; getaddrinfo
asks again after 5 s (resolv.conf), and from the same port, so that kube-proxy sends it to the same server. A follower that has to connect anew to its leader must not wait for
that: an address that was right before is right still, nearly always. Java keeps addresses for 30 s (networkaddress.cache.ttl), and former ones as long as one likes
(networkaddress.cache.stale.ttl).
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
"""How long an answer may take where there is an older one; the name servers of a Kubernetes need some milliseconds."""
ASK_AGAIN_S: Final = 1.0
"""A lookup that takes longer has probably lost its question: another one asks from another port."""
LOOKUPS_MAX: Final = 4
"""For one answer."""
_UNKNOWN: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})
"""Name servers have answered: there is no such host."""

T = TypeVar("T")
Lookup = Callable[[str], list[str]]
"""Blocks. Raises OSError, and UnicodeError for what is no name of a host."""


def look_up(host: str) -> list[str]:
    """All addresses, in the order in which they are to be tried (getaddrinfo, RFC 6724)."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_text(info[4]) for info in infos))


@dataclass(slots=True)
class _Question:
    """Lookups of one host; the first one that finds it answers for all, and ends it. begun, running: how many; last_s: when the last one began (time.monotonic)."""

    answer: Future[list[str]] = field(default_factory=Future)
    begun: int = 0
    running: int = 0
    last_s: float = 0.0


class HostNames:
    """Looks names up in threads that nobody waits for at the end; usable from any number of loops."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._lock = threading.Lock()
        self._known: dict[str, list[str]] = {}
        self._asked: dict[str, _Question] = {}

    async def first(
        self, host: str, connect: Callable[[str], Awaitable[T]], *, only_current: bool = False
    ) -> T:
        """What `connect` gives for the first of the host's addresses for which it raises no OSError. Raises as `addresses`, and what a refusing address raised, else the first."""
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
        """At least one. only_current: none that is only known from before.

        Raises OSError for a host that does not exist, or of which nothing is known and nobody answers; UnicodeError for what is no name.
        """
        if _is_address(host):
            return [host]
        known = None if only_current else self._known.get(host)
        while True:
            asked = asyncio.wrap_future(self._ask(host))
            try:
                async with asyncio.timeout(ASK_AGAIN_S if known is None else PATIENCE_S):
                    return await asked
            except TimeoutError:
                if known is not None:
                    return known
            except OSError as error:
                if known is None or _is_unknown(error):
                    raise
                return known

    def _ask(self, host: str) -> Future[list[str]]:
        """The answer, after one more lookup has begun where that helps. Raises OSError if no thread can be had."""
        with self._lock:
            question = self._asked.setdefault(host, _Question())
            now_s = time.monotonic()
            if question.begun == 0:
                question.answer.set_running_or_notify_cancel()  # who stops waiting stops nobody else
                self._begin(host, question, now_s)
            elif now_s - question.last_s >= ASK_AGAIN_S and question.begun < LOOKUPS_MAX:
                self._begin(host, question, now_s)
            return question.answer

    def _begin(self, host: str, question: _Question, now_s: float) -> None:
        question.begun += 1
        question.running += 1
        question.last_s = now_s
        try:
            threading.Thread(target=self._run, args=(host, question), daemon=True).start()
        except RuntimeError as error:  # there may be no more threads
            self._failed(host, question, OSError(str(error)))

    def _run(self, host: str, question: _Question) -> None:
        try:
            found = self._lookup(host)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            with self._lock:
                self._failed(host, question, error)
        else:
            with self._lock:
                question.running -= 1
                if not question.answer.done():
                    self._known[host] = found
                    del self._asked[host]
                    question.answer.set_result(found)

    def _failed(self, host: str, question: _Question, error: Exception) -> None:
        """Others may still find it, unless it is certain that there is no such host."""
        question.running -= 1
        if question.answer.done() or (question.running and not _is_unknown(error)):
            return
        if _is_unknown(error):
            self._known.pop(host, None)
        del self._asked[host]
        question.answer.set_exception(error)


HOST_NAMES: Final = HostNames()
"""Of this process: what one connection has learned the next one knows."""


def _text(address: tuple[object, ...]) -> str:
    """With the scope of a link-local address, which belongs to it (RFC 4007)."""
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
