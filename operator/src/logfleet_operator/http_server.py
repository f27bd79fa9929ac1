"""/healthz, /readyz and /metrics. SHELL.

Healthy: the dispatcher keeps turning and the watches' threads live. Ready: all resources were
listed once (except in namespaces that refuse) and kopf has started, or another operator holds the
Lease and this one stands by. An operator that has never reached the API server is not ready.
Clusters of other releases are named, and are no fault. Neither check depends on the API server's
answering now: a restart of the operator would not bring it back.
"""

import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from logfleet_operator.lease_holder import LeaseHolder
from logfleet_operator.worker import TICK_S, Worker

STALLED_S: Final = 12 * TICK_S


async def serve(
    worker: Worker,
    *,
    watching: Callable[[], bool],
    alive: Callable[[], bool],
    leadership: LeaseHolder | None,
    left_alone: Callable[[], str],
    port: int,
) -> web.AppRunner:
    """Listen on all interfaces, IPv4 and IPv6; the caller must call `cleanup` on the result.

    leadership: None for an operator without a Lease.
    """

    async def healthz(_: web.Request) -> web.Response:
        silent_s = time.monotonic() - worker.ticked
        if silent_s > STALLED_S or not alive():
            why = f"dispatcher silent for {silent_s:.0f} s, watches alive: {alive()}"
            return web.Response(status=503, text=why + "\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if leadership is not None and leadership.stands_by:
            return web.Response(text="stands by\n")
        if worker.synced and watching():
            others = left_alone()
            return web.Response(text=f"ready; {others}\n" if others else "ready\n")
        why = f"listed all resources: {worker.synced}, watching: {watching()}"
        if leadership is not None:
            why = f"Lease was read: {leadership.was_read}, {why}"
        return web.Response(status=503, text=why + "\n")

    async def metrics(_: web.Request) -> web.Response:
        text = worker.metrics.exposition()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()  # probes come from the node
    return runner
