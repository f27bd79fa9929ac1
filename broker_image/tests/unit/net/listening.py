"""A listener in a test's hands."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from logfleet.net.connection import Service
from logfleet.net.listener import Listener
from logfleet.net.sockets import bind_tcp


@asynccontextmanager
async def serving(service: Service, **options: Any) -> AsyncIterator[tuple[Listener, int]]:
    """A listener that serves on a port of loopback, and the port. The test stops it.

    options: of Listener.
    """
    with ThreadPoolExecutor(1) as disk:
        listener = Listener("L", service, disk=disk, **options)
        port = listener.take("127.0.0.1", bind_tcp("127.0.0.1", 0))
        await listener.serve()
        yield listener, port


def stop_ticking(listener: Listener) -> None:
    """From now on only the test moves its clock (`now`, seconds) and sweeps (`_close_idle`).

    A busy machine makes nobody idle.
    """
    assert listener._ticker is not None, "it serves"
    listener._ticker.cancel()
