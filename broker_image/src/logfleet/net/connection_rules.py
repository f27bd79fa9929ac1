"""Turns a broker's configuration into the connection limits of its listeners."""

import asyncio
import socket
import time
from collections.abc import Sequence

import msgspec
import structlog

from logfleet.config.broker import BrokerConfig
from logfleet.config.connection_limits import ConnectionLimits, connection_limits
from logfleet.config.topic import BrokerLayers
from logfleet.net.connection_quotas import ConnectionQuotas
from logfleet.net.listener import Listener, close_least_recently_used
from logfleet.quotas.entities import address_of

log = structlog.get_logger(__name__)


class ConnectionRules:
    """The limits of one broker. listeners: the broker adds them as it opens them.

    possible_max: see ConnectionQuotas.
    """

    def __init__(
        self, config: BrokerConfig, listeners: Sequence[Listener], possible_max: int
    ) -> None:
        self._names = [listener.name for listener in config.listeners]
        self._listeners = listeners
        self._protected = config.inter_broker_listener_name if len(self._names) > 1 else None
        self.quotas = ConnectionQuotas(
            connection_limits(BrokerLayers(config.static), self._names),
            lambda: time.monotonic_ns() // 1_000_000,
            protected=self._protected,
            possible_max=possible_max,
            make_room=self._make_room,
        )

    async def update(self, layers: BrokerLayers) -> None:
        """Apply the connection limits of this configuration from now on."""
        self.quotas.update(await resolved(connection_limits(layers, self._names)))

    def _make_room(self, excess: int) -> None:
        others = [each for each in self._listeners if each.name != self._protected]
        close_least_recently_used(others, excess)


async def resolved(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits with addresses for host names; a name that has none is left out, and logged."""
    by_address: dict[str, int] = {}
    loop = asyncio.get_running_loop()
    for host, limit in limits.by_address.items():
        address = address_of(host)
        if address is not None:
            by_address[address] = limit
            continue
        try:
            infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name at all, as 10..0.1
            log.warning("host_not_resolved", host=host, error=str(error))
            continue
        addresses = (str(info[4][0]) for info in infos)
        by_address |= {address_of(address) or address: limit for address in addresses}
    return msgspec.structs.replace(limits, by_address=by_address)
