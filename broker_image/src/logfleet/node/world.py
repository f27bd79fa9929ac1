"""What the modules of a broker reach the outside through: clock, metadata store, connections.

A module that needs one of them gets it as an argument and imports none, so that a simulation can
run it in a world of its own. Pauses and timeouts are those of the running loop.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from logfleet.client.connection import Connection
from logfleet.io.clock import Clock
from logfleet.metadata.store import MetadataStore

Connect = Callable[[str, int, str], Awaitable[Connection]]
"""host, port, client id: opens a connection to a broker. Errors: see Connection.connect."""


@dataclass(frozen=True, slots=True)
class World:
    """One broker's world. connect: to other brokers."""

    clock: Clock
    store: MetadataStore
    connect: Connect
