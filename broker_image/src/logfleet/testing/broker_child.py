"""A broker as a child of the prepared process, and the orders that it takes."""

import asyncio
import encodings.idna  # noqa: F401  a broker imports it when it resolves a name
import gc
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

import logfleet.node.metrics.admin_http  # noqa: F401  a broker imports it when it starts
from logfleet.config.broker import ConfigError, broker_config
from logfleet.io import descriptors
from logfleet.io.clock import advance_wall_clock
from logfleet.io.files import PosixFiles
from logfleet.io.logging import start_logging
from logfleet.node.broker import Broker, StartError
from logfleet.node.handlers import all_handlers
from logfleet.store.opening import open_store
from logfleet.telemetry.decisions import Query
from logfleet.testing.child import Control, Order
from logfleet.testing.errors import OrderFailed
from logfleet.testing.faults.disk import FaultyFiles
from logfleet.testing.faults.handlers import with_faults
from logfleet.testing.faults.orders import ORDERS as OF_FAULTS
from logfleet.testing.faults.rules import FaultBook
from logfleet.testing.running import Running
from logfleet.testing.unsynced import UnsyncedFiles, open_unsynced_store

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

all_handlers()  # imports them


def run(channel: socket.socket, settings: Mapping[str, Any]) -> int:
    """Run a broker until its channel closes, it is asked to stop, or it fails; the exit code.

    settings: `config`, its keys as text; `synced`, whether it waits for the disk; `ahead_ms`, by
    how much its wall clock is later.
    """
    gc.enable()
    descriptors.raise_limit()
    listener = start_logging("info", json=False)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(channel, settings))
    finally:
        listener.stop()


async def _serve(channel: socket.socket, settings: Mapping[str, Any]) -> int:
    control = await Control.over(channel)
    try:
        config = broker_config(settings["config"])
        advance_wall_clock(settings["ahead_ms"])
        running = _made(config, is_synced=settings["synced"])
        async with running.broker as broker:
            orders = asyncio.create_task(control.serve(running, ORDERS))
            orders.add_done_callback(lambda _: broker.end())
            control.started(_whereabouts(broker))
            await broker.until_ended()
    except (ConfigError, StartError) as error:
        await control.failed(str(error))
        return 1
    return 0 if running.broker.failure is None else 1


def _made(config: Any, *, is_synced: bool) -> Running:
    """A broker that is not started yet.

    It has no dead man's timer: a test that stops and continues it wants to see what it does then.
    """
    files = FaultyFiles(PosixFiles() if is_synced else UnsyncedFiles())
    store = open_store if is_synced else open_unsynced_store
    faults = FaultBook()
    handlers = with_faults(all_handlers(), faults)
    return Running(Broker(config, files, open_store=store, handlers=handlers), files, faults)


def _whereabouts(broker: Broker) -> dict[str, object]:
    """Where the broker serves."""
    listener = broker.opened.listeners.all[0]
    return {
        "port": listener.port,
        "admin": broker.opened.observation.address,
        "cluster_id": broker.cluster_id,
    }


# --- orders


async def stop(running: Running, order: Mapping[str, Any]) -> None:
    """Begin to stop in order; the channel closes when that is done."""
    del order
    running.broker.end()


async def events(running: Running, order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the broker decided, oldest first.

    query: the fields of `telemetry.decisions.Query`, for a selection.
    """
    try:
        query = msgspec.convert(order.get("query", {}), Query, strict=False)
    except msgspec.ValidationError as error:
        raise OrderFailed(f"events: {error}") from error
    return [json.loads(line) for line in running.broker.decisions.select(query)]


ORDERS: Final[dict[str, Order[Running]]] = {"events": events, "stop": stop, **OF_FAULTS}
