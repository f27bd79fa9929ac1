"""The listeners that a broker's configuration names, and their advertised addresses."""

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from logfleet.config.broker import BrokerConfig
from logfleet.metadata.kinds.brokers import Endpoint as Address
from logfleet.net.connection import Service
from logfleet.net.connection_quotas import ConnectionQuotas
from logfleet.net.listener import Listener


class CannotListen(Exception):
    """A port is taken, or an address is not this machine's. The text is one line that says it."""

    def __init__(self, what: str, address: Address, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"{what} cannot listen on {address.host}:{address.port}: {reason}")


def listener_of(
    address: Address,
    config: BrokerConfig,
    service: Service,
    *,
    disk: Executor,
    quotas: ConnectionQuotas,
    throttle: Callable[[str], int],
) -> Listener:
    """Not bound yet. disk, quotas, throttle: see Listener."""
    return Listener(
        address.name,
        service,
        disk=disk,
        request_bytes_max=config.socket_request_max_bytes,
        idle_s_max=config.connections_max_idle_ms / 1000,
        quotas=quotas,
        backlog=config.socket_listen_backlog_size,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        throttle=throttle,
    )


async def bind(listener: Listener, address: Address) -> int:
    """Take the port; return it. Raises CannotListen."""
    try:
        return await listener.bind(address.host, address.port)
    except OSError as error:
        raise CannotListen(f"listener {address.name}", address, error) from error


def advertised(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[Address, ...]:
    """The addresses that clients get (advertised.listeners).

    A missing host is this machine's name, a missing port the bound one of `ports`.
    """
    return tuple(
        Address(
            each.name,
            each.host or socket.gethostname(),
            each.port or ports[each.name],
            each.protocol,
        )
        for each in config.advertised_listeners
    )
