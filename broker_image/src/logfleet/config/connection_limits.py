"""Limits on connections, read from a broker's configuration.

KIP-308, KIP-402, KIP-612; Kafka: ConnectionQuotas.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from logfleet.config.keys import BROKER_KEYS, ConfigError
from logfleet.config.topic import BrokerLayers

# Limits that a single listener may have; at least 1 each (Kafka:
# ListenerConnectionQuota.validateReconfiguration).
OF_ONE_LISTENER: Final = frozenset({"max.connections", "max.connection.creation.rate"})
_OVERRIDES: Final = "max.connections.per.ip.overrides"


class ConnectionLimits(msgspec.Struct, frozen=True):
    """A broker's limits.

    listeners: listener name (upper case) -> its own limits. by_address: host as given -> most
    connections from it.
    """

    max_connections: int
    max_connection_creation_rate: int
    max_connections_per_ip: int
    by_address: Mapping[str, int]
    listeners: Mapping[str, "ListenerLimits"]


class ListenerLimits(msgspec.Struct, frozen=True):
    """The most connections, and the most new connections per second."""

    max_connections: int
    max_connection_creation_rate: int


def connection_limits(layers: BrokerLayers, listeners: Iterable[str]) -> ConnectionLimits:
    """The limits in force.

    A listener has its own only if `listener.name.NAME.` precedes the key.
    """
    return ConnectionLimits(
        max_connections=_limit("max.connections", layers),
        max_connection_creation_rate=_limit("max.connection.creation.rate", layers),
        max_connections_per_ip=_limit("max.connections.per.ip", layers),
        by_address=parse_ip_overrides(layers.effective_value(_OVERRIDES) or ""),
        listeners={
            name: ListenerLimits(
                _limit("max.connections", layers, name),
                _limit("max.connection.creation.rate", layers, name),
            )
            for name in listeners
        },
    )


def listener_key(listener: str, key: str) -> str:
    """The key for one listener only."""
    return f"listener.name.{listener.lower()}.{key}"


def _limit(key: str, layers: BrokerLayers, listener: str | None = None) -> int:
    text = (
        layers.effective_value(key)
        if listener is None
        else layers.set_value(listener_key(listener, key)) or BROKER_KEYS[key].default
    )
    value = BROKER_KEYS[key].parse(text)
    assert isinstance(value, int), f"{key} is a number with a default"
    return value


def parse_ip_overrides(text: str) -> dict[str, int]:
    """Addresses or host names with the most connections from each. Raises ConfigError."""
    limits = {}
    for entry in text.split(","):
        host, colon, count = entry.strip().rpartition(":")
        if not entry.strip():
            continue
        try:
            limit = int(count)
        except ValueError:
            limit = -1
        if not colon or not host or limit < 0:
            raise ConfigError(_OVERRIDES, f"{_OVERRIDES}: {entry.strip()!r} is not host:count")
        limits[host.strip("[]")] = limit
    return limits
