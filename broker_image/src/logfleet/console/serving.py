"""The web application: routes, headers, and the sampler that runs beside them."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from logfleet.client.metadata import bracketed
from logfleet.console import changes, pages, record_pages
from logfleet.console.app import CONSOLE, HERE, Console, Options, guard

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
SHUTDOWN_S_MAX: Final = 1.0


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        if name != "Cache-Control" or "/static/" not in request.path:
            response.headers[name] = value


async def _icon(_request: web.Request) -> web.FileResponse:
    return web.FileResponse(HERE / "static" / "icon.svg")


async def _sampling(app: web.Application) -> AsyncIterator[None]:
    console = app[CONSOLE]
    task = asyncio.create_task(console.sampler.run())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await console.scans.close()
    console.sampler.client.close()
    console.client.close()


def make_app(options: Options) -> web.Application:
    """The application; it samples while it runs."""
    inner = web.Application(middlewares=[guard])
    inner[CONSOLE] = Console(options)
    inner.on_response_prepare.append(_add_headers)
    inner.cleanup_ctx.append(_sampling)
    inner.router.add_static("/static", HERE / "static")
    inner.router.add_get("/favicon.ico", _icon)  # browsers ask for it beside JSON
    if not options.hidden:
        record_pages.add_pages(inner)
    if options.write:
        changes.add_pages(inner)
    pages.add_pages(inner)
    if not options.base_path:
        return inner
    outer = web.Application()
    outer.add_subapp(options.base_path, inner)
    return outer


async def serve(options: Options, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. ready: gets the URL. Raises OSError if the port is taken."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    runner = web.AppRunner(make_app(options), access_log=None, shutdown_timeout=SHUTDOWN_S_MAX)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound: int = runner.addresses[0][1]
        ready(f"http://{bracketed(host)}:{bound}{options.base_path}/")
        await stopped.wait()
    finally:
        await runner.cleanup()
