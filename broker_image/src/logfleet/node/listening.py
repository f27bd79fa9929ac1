"""The listeners that a broker's configuration names, and their advertised addresses."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from logfleet.config.broker import BrokerConfig
from logfleet.metadata.kinds.brokers import Endpoint as Address
from logfleet.net.connection import Service
from logfleet.net.connection_rules import ConnectionRules
from logfleet.net.listener import Listener
from logfleet.net.sockets import bind_tcp
from logfleet.node.lifetime import Lifetime

STOP_GRACE_S: Final = 10.0
"""How long requests in progress may take after SIGTERM before their connections are cut."""


class CannotListen(Exception):
    """A port is taken, or an address is not this machine's. The text is one line that says it."""

    def __init__(self, what: str, address: Address, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"{what} cannot listen on {address.host}:{address.port}: {reason}")


@dataclass(frozen=True, slots=True)
class Port:
    """A port that was taken for a listener, and does not listen yet."""

    address: Address
    sockets: list[socket.socket]

    @property
    def number(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Give the port back; its listener may have done so before."""
        for each in self.sockets:
            each.close()


async def open_ports(config: BrokerConfig, life: Lifetime) -> list[Port]:
    """Take the ports of all listeners. Raises CannotListen."""
    ports = []
    for address in config.listeners:
        try:
            sockets = await asyncio.get_running_loop().run_in_executor(
                None,
                bind_tcp,
                address.host,
                address.port,
                config.socket_receive_buffer_bytes,
            )
        except OSError as error:
            raise CannotListen(f"listener {address.name}", address, error) from error
        port = Port(address, sockets)
        life.closing.callback(port.close)
        ports.append(port)
    return ports


@dataclass(frozen=True, slots=True)
class Listeners:
    """rules: limit the connections of `all`."""

    all: Sequence[Listener]
    rules: ConnectionRules

    async def serve(self, life: Lifetime) -> None:
        """Accept connections; requests in progress have STOP_GRACE_S once the broker closes."""
        for listener in self.all:
            await listener.serve()
            life.closing.push_async_callback(listener.stop, STOP_GRACE_S)


def listeners_on(
    ports: Iterable[Port],
    service: Service,
    config: BrokerConfig,
    *,
    disk: Executor,
    throttle: Callable[[str], int],
    connections_max: int,
) -> Listeners:
    """Not serving yet. disk, throttle: see Listener. connections_max: see ConnectionRules."""
    made: list[Listener] = []
    rules = ConnectionRules(config, made, connections_max)
    for port in ports:
        listener = Listener(
            port.address.name,
            service,
            disk=disk,
            request_bytes_max=config.socket_request_max_bytes,
            idle_s_max=config.connections_max_idle_ms / 1000,
            quotas=rules.quotas,
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            throttle=throttle,
        )
        listener.take(port.address.host, port.sockets)
        made.append(listener)
    return Listeners(made, rules)


def advertised(config: BrokerConfig, ports: Iterable[Port]) -> tuple[Address, ...]:
    """The addresses that clients get (advertised.listeners).

    A missing host is this machine's name, a missing port the bound one of `ports`.
    """
    bound = {port.address.name: port.number for port in ports}
    return tuple(
        Address(
            each.name,
            each.host or socket.gethostname(),
            each.port or bound[each.name],
            each.protocol,
        )
        for each in config.advertised_listeners
    )
