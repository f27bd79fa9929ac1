"""The addresses that a client starts with, and its warnings while no broker answers there."""

from collections.abc import Callable
from typing import Final

from logfleet.client.errors import ConnectionLost, UnknownHost

DEFAULT_PORT: Final = 9092
PLAINTEXT: Final = "PLAINTEXT"
NOT_BUILT: Final = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""Kafka's other security protocols (org.apache.kafka.common.security.auth.SecurityProtocol)."""
RESOLVE_S_MAX: Final = 30.0
"""A name without an address for this long is wrong: pods and services get theirs within
seconds. Kafka's clients wait for 2 minutes (KIP-909).
"""
WARN_AFTER_S: Final = 5.0
WARN_EVERY_S: Final = 30.0


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Addresses of "[PLAINTEXT://]host[:port],..."; IPv6 hosts in brackets. Raises ValueError."""
    addresses = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address = _without_protocol(entry)
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(DEFAULT_PORT)
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{entry!r} is no address: write host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap address: write host:port[,host:port...]")
    return addresses


def _without_protocol(entry: str) -> str:
    protocol, mark, address = entry.rpartition("://")
    if mark and protocol.upper() in NOT_BUILT:
        raise ValueError(
            f"{entry!r}: {protocol} is not built yet: write host:port of a listener in plain text"
        )
    return address if mark and protocol.upper() == PLAINTEXT else entry


class Outage:
    """How long nobody has answered a client at all.

    bootstrap: as it was given. warn: is called with a sentence WARN_AFTER_S after the first
    failure, and then every WARN_EVERY_S as long as it is tried; None: nobody is warned.
    """

    def __init__(self, bootstrap: str, warn: Callable[[str], None] | None) -> None:
        self._bootstrap = bootstrap
        self._warn = warn
        self._was_answered = False
        self._since_s: float | None = None
        self._warn_at_s = 0.0

    def is_over(self) -> None:
        """A broker has answered."""
        self._was_answered = True
        self._since_s = None

    def failed(self, error: ConnectionLost, now_s: float) -> None:
        """No broker has answered; now_s: the loop's time.

        Raises UnknownHost, which is not retriable, if none of the names has had an address for
        RESOLVE_S_MAX and no broker ever answered.
        """
        if self._since_s is None:
            self._since_s, self._warn_at_s = now_s, now_s + WARN_AFTER_S
        for_s = now_s - self._since_s
        if isinstance(error, UnknownHost) and not self._was_answered and for_s >= RESOLVE_S_MAX:
            final = UnknownHost(f"no address for {for_s:.0f} s: {error}; correct the name")
            final.retriable = False
            raise final from error
        if self._warn is not None and now_s >= self._warn_at_s:
            self._warn_at_s = now_s + WARN_EVERY_S
            self._warn(f"no broker has answered at {self._bootstrap} for {for_s:.0f} s: {error}")
