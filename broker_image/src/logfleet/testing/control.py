"""Clusters of tests in other languages: what `logfleet.testing` gives to Python, by HTTP.

POST /clusters starts brokers; everything else is below /clusters/ID. A method of the Python object
is a POST to its name with its arguments as fields of a JSON object; bytes come as base64. A fault
is a resource: POST /clusters/ID/faults arms it, GET shows its hits, DELETE removes it. Answers are
JSON; an error is {"error": "a sentence"} with 400, 404 for a path that is not there.

Only this machine is served, and no page of a browser: a request with an Origin, or for another host
than loopback, gets 403.
"""

import difflib
import inspect
import itertools
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from logfleet.testing.brokers import Broker
from logfleet.testing.errors import OrderFailed
from logfleet.testing.faults.disturbing import ArmedFault, FaultMissed
from logfleet.testing.fleets import Fleet

LOOPBACK: Final = "127.0.0.1"
HOSTS: Final = {LOOPBACK, "localhost", "[::1]"}
BODY_BYTES_MAX: Final = 1 << 20
BROKERS_MAX: Final = 15
OF_CLUSTERS: Final = frozenset(
    {
        "create_topic",
        "delete_topic",
        "records",
        "end",
        "leader_id",
        "in_sync",
        "move_leader",
        "events",
        "advance",
        "compact_now",
        "expire_producer",
        "set_disk",
    }
)
OF_BROKERS: Final = frozenset({"kill", "pause", "resume", "stop", "restart", "events", "set_disk"})
OF_GROUPS: Final = frozenset({"wait", "committed", "rebalance", "expire_member"})


class NotThere(Exception):
    """There is nothing at the path."""


class WrongRequest(Exception):
    """The request makes no sense. The text is one sentence."""


class Cluster:
    """One broker or a fleet, with the faults that were armed by requests."""

    def __init__(self, number: int, opened: Broker | Fleet) -> None:
        self.number = number
        self.opened = opened
        self.faults: dict[int, ArmedFault] = {}
        self._numbers = itertools.count(1)

    @property
    def brokers(self) -> list[Broker]:
        return self.opened.brokers if isinstance(self.opened, Fleet) else [self.opened]

    def broker(self, broker_id: str) -> Broker:
        for each in self.brokers:
            if str(each.id) == broker_id:
                return each
        raise NotThere

    def described(self) -> dict[str, Any]:
        return {
            "cluster": self.number,
            "bootstrap": self.opened.bootstrap,
            "brokers": [
                {
                    "broker": each.id,
                    "bootstrap": each.bootstrap,
                    "pid": each.pid,
                    "running": each.running,
                    "paused": each.paused,
                }
                for each in self.brokers
            ],
        }

    def arm(self, described: dict[str, Any]) -> dict[str, Any]:
        """Arm a fault at all brokers, or at the one that `broker` names."""
        at = described.pop("broker", None)
        target = self.opened if at is None else self.broker(str(at))
        number = next(self._numbers)
        self.faults[number] = called(target.fault, described)
        return {"fault": number, "hits": 0}

    def fault(self, number: str) -> ArmedFault:
        try:
            return self.faults[int(number)]
        except (ValueError, KeyError):
            raise NotThere from None

    def remove(self, number: str) -> dict[str, Any]:
        hits = self.fault(number).remove()
        del self.faults[int(number)]
        return {"fault": int(number), "hits": hits}


class Clusters:
    """All that were started and not removed. Requests are served side by side."""

    def __init__(self) -> None:
        self._all: dict[int, Cluster] = {}
        self._numbers = itertools.count(1)
        self._lock = Lock()

    def start(
        self,
        brokers: int = 1,
        zones: list[str] | None = None,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Start one broker, or a fleet of several; it serves when this returns."""
        if not 1 <= brokers <= BROKERS_MAX:
            raise WrongRequest(f"brokers is a number from 1 to {BROKERS_MAX}")
        made: Broker | Fleet = (
            Broker(config, topics=topics)
            if brokers == 1
            else Fleet(brokers, zones=zones or (), config=config, topics=topics)
        )
        with self._lock:
            cluster = Cluster(next(self._numbers), made.__enter__())
            self._all[cluster.number] = cluster
        return cluster.described()

    def find(self, number: str) -> Cluster:
        try:
            return self._all[int(number)]
        except (ValueError, KeyError):
            raise NotThere from None

    def described(self) -> list[dict[str, Any]]:
        return [each.described() for each in list(self._all.values())]

    def end(self, number: str) -> None:
        """End a cluster and remove its data."""
        cluster = self.find(number)
        del self._all[cluster.number]
        cluster.opened.close()

    def close(self) -> None:
        """End all of them."""
        for number in list(self._all):
            self.end(str(number))

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        """The document that answers a request. Raises NotThere, WrongRequest and OrderFailed."""
        parts = [each for each in path.split("/") if each]
        match method, parts:
            case "GET", ["clusters"]:
                return self.described()
            case "POST", ["clusters"]:
                return called(self.start, body)
            case "GET", ["clusters", number]:
                return self.find(number).described()
            case "DELETE", ["clusters", number]:
                return self.end(number)
            case _, ["clusters", number, "faults", *rest]:
                return _of_faults(self.find(number), method, rest, query, body)
            case "POST", ["clusters", number, "brokers", broker, do] if do in OF_BROKERS:
                return called(getattr(self.find(number).broker(broker), do), body)
            case "POST", ["clusters", number, "groups", group, do] if do in OF_GROUPS:
                return called(getattr(self.find(number).opened.group(group), do), body)
            case "POST", ["clusters", number, do] if do in OF_CLUSTERS:
                return called(getattr(self.find(number).opened, do), body)
        raise NotThere


def _of_faults(
    cluster: Cluster, method: str, rest: list[str], query: Mapping[str, str], body: Any
) -> Any:
    match method, rest:
        case "POST", []:
            return cluster.arm(body)
        case "GET", []:
            return [{"fault": n, "hits": each.hits} for n, each in cluster.faults.items()]
        case "GET", [number]:
            fault = cluster.fault(number)
            if "hits" in query:
                fault.wait(int(query["hits"]), float(query.get("timeout_s", "10")))
            return {"fault": int(number), "hits": fault.hits}
        case "DELETE", [number]:
            return cluster.remove(number)
    raise NotThere


def called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What the function returns for these arguments. Raises WrongRequest if it has others."""
    signature = inspect.signature(function)
    known = signature.parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
    for name in arguments:
        if name not in known and not takes_any:
            near = difflib.get_close_matches(name, known, n=1)
            ending = f": did you mean {near[0]}?" if near else ""
            raise WrongRequest(f"{function.__name__} has no argument {name!r}{ending}")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise WrongRequest(f"{function.__name__}: {error}") from None
    return function(**arguments)


class Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    protocol_version = "HTTP/1.1"
    server: "ControlServer"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        """Nothing: the test reports what it does."""

    def _serve(self) -> None:
        status, document = self._answered()
        body = msgspec.json.encode(document) + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answered(self) -> tuple[HTTPStatus, Any]:
        host = re.sub(r":\d+$", "", self.headers.get("Host", LOOPBACK))
        if "Origin" in self.headers or host not in HOSTS:
            return HTTPStatus.FORBIDDEN, {"error": "only programs on this machine are served"}
        url = urlsplit(self.path)
        try:
            body = self._body()
            found = self.server.clusters.answer(
                self.command, url.path, dict(parse_qsl(url.query)), body
            )
        except NotThere:
            return HTTPStatus.NOT_FOUND, {"error": f"there is nothing at {url.path}"}
        except (WrongRequest, OrderFailed, FaultMissed, ValueError, TypeError) as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        return HTTPStatus.OK, found

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            raise WrongRequest(f"a request has at most {BODY_BYTES_MAX} bytes")
        text = self.rfile.read(length)
        document = msgspec.json.decode(text) if text.strip() else {}
        if not isinstance(document, dict):
            raise WrongRequest("the body of a request is a JSON object")
        return document


class ControlServer(ThreadingHTTPServer):
    """Serves on loopback until it is shut down. clusters: what was started by requests."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.clusters = Clusters()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}"
