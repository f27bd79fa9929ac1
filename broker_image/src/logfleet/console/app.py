"""What all pages share: what they read, how a view becomes HTML or JSON, who is refused."""

import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from aiohttp import web

from logfleet import __version__
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.console.sampler import Sampler
from logfleet.console.scan import Scans
from logfleet.console.views import texts

HERE: Final = Path(__file__).parent
ANSWER_MS_MAX: Final = 5_000
LOCAL_NAMES: Final = frozenset({"localhost", "::1"})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """hidden: no page shows records. masks: fields of values that are not shown, as value.card.

    base_path: "" or as /x, behind a proxy. stuck_s: a group that has members and lag is stuck
    after so long without a commit. local: only browsers on this machine are served.
    """

    bootstrap: str
    write: bool = False
    hidden: bool = False
    masks: tuple[str, ...] = ()
    base_path: str = ""
    stuck_s: float = 60.0
    local: bool = True


class View(msgspec.Struct, frozen=True):
    """A page. data: its JSON. command: the arguments of `logfleet` that show the same.

    live: a browser repeats it after so many seconds; 0: it does not change.
    """

    template: str
    title: str
    data: Mapping[str, Any]
    command: Sequence[str]
    live: float = 2


class Console:
    """What all pages share. client: for what a page asks when it is opened.

    settings: of topics whose page was opened, and when they were asked for.

    token: of this process; requests that change something carry it.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.sampler = Sampler(options.bootstrap)
        self.client = Client(
            options.bootstrap,
            client_id="logfleet-console",
            request_timeout_ms=ANSWER_MS_MAX,
            timeout_ms=ANSWER_MS_MAX,
        )
        self.scans = Scans()
        self.settings: dict[str, tuple[float, list[dict[str, Any]]]] = {}
        self.token = secrets.token_urlsafe(32)
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self.templates.filters |= {
            "bytes": texts.bytes_text,
            "count": texts.count_text,
            "duration": texts.duration_text,
            "time": texts.time_text,
            "spark": texts.spark_points,
            "path": lambda name: quote(str(name), safe=""),
        }

    def html(self, request: web.Request, view: View) -> str:
        """The whole page."""
        sample, now_s = self.sampler.sample, time.time()
        at_s = sample.at_s.get("cluster")
        return self.templates.get_template(view.template).render(
            data=view.data,
            title=view.title,
            live=view.live,
            base=self.options.base_path,
            options=self.options,
            token=self.token,
            version=__version__,
            path=request.path.removeprefix(self.options.base_path),
            query=dict(request.query),
            link=lambda **changed: "?" + urlencode({**request.query, **changed}),
            command=self.command(view.command),
            age_s=None if at_s is None else now_s - at_s,
            now_ms=int(now_s * 1000),
            failures=sample.failures,
        )

    def command(self, arguments: Sequence[str]) -> str:
        """The line for a shell that shows the same."""
        return shlex.join(["logfleet", *arguments, "-b", self.options.bootstrap])


CONSOLE: Final = web.AppKey("console", Console)
Make = Callable[[Console, web.Request], Awaitable[View]]


def page(make: Make, *, as_json: bool = False) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers with the view that `make` returns, or with the reason why not."""

    async def handle(request: web.Request) -> web.Response:
        console = request.app[CONSOLE]
        status, view = 200, View("error.html", "Error", {}, ("cluster",), live=0)
        try:
            view = await make(console, request)
        except web.HTTPNotFound as error:
            status, reason = 404, error.text or "There is no such page."
        except ValueError as error:
            status, reason = 400, str(error)
        except (ClientError, TimeoutError) as error:
            status, reason = 502, str(error) or "The brokers do not answer in time."
        else:
            reason = ""
        if reason:
            view = msgspec.structs.replace(view, data={"error": reason})
        if as_json:
            return web.Response(
                body=msgspec.json.encode(view.data), status=status, content_type="application/json"
            )
        return web.Response(
            text=console.html(request, view), status=status, content_type="text/html"
        )

    return handle


def add_page(app: web.Application, path: str, make: Make) -> None:
    """Serve a view at the path, and as JSON at the path with .json."""
    app.router.add_get((path if path != "/" else "/overview") + ".json", page(make, as_json=True))
    app.router.add_get(path, page(make))


@web.middleware
async def guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse other names of this machine: a page elsewhere could make its own name point here."""
    console = request.app[CONSOLE]
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin", request.host).rpartition("/")[2]
    if request.method != "GET" and (site not in {"same-origin", "none"} or origin != request.host):
        raise web.HTTPForbidden(text="Only the console's own pages may ask for that.")
    host = request.url.host or ""
    if console.options.local and not (host in LOCAL_NAMES or _is_loopback(host)):
        raise web.HTTPMisdirectedRequest(text=f"The console is not {host}.")
    return await handler(request)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
