"""The admin port: /healthz, /readyz, /metrics, /events, /may-i and /traffic over HTTP.

`/events?since=MS&topic=T&partition=N&broker=ID&kind=KIND`: this broker's decisions as lines of
JSON, oldest first; all parameters are optional, kind may be repeated. `/may-i?stop=ID` and
`/may-i?lose-zone=ZONE`, once or more: whether these brokers may go down now, as JSON. `/traffic`:
the traffic of the partitions that it leads over the last minute, with their clients, as lines of
JSON, the busiest first.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from logfleet.metadata.image import ClusterImage
from logfleet.node.decisions.may_i_answer import WrongMayIRequest, answer
from logfleet.telemetry.decisions import Decisions, Query
from logfleet.telemetry.exposition import CONTENT_TYPE
from logfleet.telemetry.flows import Flow
from logfleet.telemetry.identity import IDENTITY_HEADER

SHUTDOWN_GRACE_S = 1.0


class AdminHttp:
    """Serves the admin port. metrics: makes their text.

    health, readiness: None if all is well, else the reason. Healthy: the process works and need not
    be restarted. Ready: clients may be sent here. decisions: the broker's. image: its newest, once
    ready. identity: sent with each answer, as IDENTITY_HEADER.
    """

    def __init__(
        self,
        metrics: Callable[[], Awaitable[str]],
        *,
        health: Callable[[], str | None],
        readiness: Callable[[], str | None],
        decisions: Decisions,
        image: Callable[[], ClusterImage],
        traffic: Callable[[], list[Flow]],
        identity: Callable[[], str],
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._decisions = decisions
        self._image = image
        self._traffic = traffic
        self._identity = identity
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Raises OSError if it is taken. host "" means all addresses."""
        app = web.Application()
        app.on_response_prepare.append(self._sign)
        app.router.add_get("/healthz", self._answer_health)
        app.router.add_get("/readyz", self._answer_readiness)
        app.router.add_get("/metrics", self._answer_metrics)
        app.router.add_get("/events", self._answer_events)
        app.router.add_get("/may-i", self._answer_may_i)
        app.router.add_get("/traffic", self._answer_traffic)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_GRACE_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host or None, port)
        try:
            await site.start()
        except OSError:
            await self.stop()  # a later `start` may use another port
            raise
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Name the broker that answers: elsewhere the same loopback port is another broker's."""
        del request
        response.headers[IDENTITY_HEADER] = self._identity()

    async def _answer_health(self, request: web.Request) -> web.Response:
        del request
        return _verdict(self._health())

    async def _answer_readiness(self, request: web.Request) -> web.Response:
        del request
        return _verdict(self._readiness())

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        del request
        body = (await self._metrics()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _answer_events(self, request: web.Request) -> web.Response:
        given: dict[str, object] = {key: value for key, value in request.query.items() if value}
        if "kind" in given:
            given["kind"] = request.query.getall("kind")
        try:
            query = msgspec.convert(given, Query, strict=False)
        except msgspec.ValidationError as error:
            return web.Response(status=400, text=f"{error}\n")
        body = b"".join(self._decisions.select(query))
        return web.Response(body=body, content_type="application/jsonl")

    async def _answer_may_i(self, request: web.Request) -> web.Response:
        """Answer only if ready: else the image may be out of date, and a yes wrong."""
        if (reason := self._readiness()) is not None:
            return _verdict(reason)
        stop, zones = (request.query.getall(name, []) for name in ("stop", "lose-zone"))
        try:
            found = await asyncio.to_thread(answer, self._image(), stop, zones)
        except WrongMayIRequest as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def _answer_traffic(self, request: web.Request) -> web.Response:
        del request
        body = msgspec.json.Encoder().encode_lines(self._traffic())
        return web.Response(body=body, content_type="application/jsonl")


def _verdict(reason: str | None) -> web.Response:
    if reason is None:
        return web.Response(text="ok\n")
    return web.Response(status=503, text=reason + "\n")
