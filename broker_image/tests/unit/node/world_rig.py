"""A broker's world for tests."""

from logfleet.client.connection import Connection
from logfleet.io.clock import SYSTEM_CLOCK, Clock
from logfleet.metadata.store import MetadataStore
from logfleet.node.world import World


def world(store: MetadataStore, clock: Clock = SYSTEM_CLOCK) -> World:
    return World(clock, store, Connection.connect)
