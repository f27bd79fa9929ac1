"""kopf itself, against a server that lists and watches as the API server does."""

import asyncio
import gc
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import kopf
import pytest
import pytest_asyncio
from aiohttp import web
from logfleet.resources.document import GROUP, VERSION
from logfleet_operator import handlers
from logfleet_operator.handlers import OWNED, Feed, Watcher
from logfleet_operator.settings import Settings
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.worker import Key, Worker

pytestmark = [
    pytest.mark.asyncio,
    # kopf's watches that are cancelled as they hand over an event
    pytest.mark.filterwarnings("ignore:coroutine 'worker' was never awaited:RuntimeWarning"),
]

SOON_S = 30
KINDS = len(OWNED) + 3
# What kopf looks for before it watches: (group, version, plural).
SERVED = (
    *OWNED,
    (GROUP, VERSION, "clusters"),
    (GROUP, VERSION, "topics"),
    (GROUP, VERSION, "rebalances"),
    ("", "v1", "namespaces"),
    ("", "v1", "events"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
)


class FakeServer:
    """One Cluster in every namespace.

    refused: namespace or plural for which lists are answered with 404, which kopf, other than 403,
    does not try again. lists: how often each namespace was asked for its Clusters; "" for all.
    happens: by plural, the events of its watches.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.lists: Counter[str] = Counter()
        self.watches = 0
        self.happens: dict[str, list[dict[str, Any]]] = {}
        self._closed = asyncio.Event()

    def close(self) -> None:
        self._closed.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        *path, plural = request.path.strip("/").split("/")
        namespace = path[path.index("namespaces") + 1] if "namespaces" in path else ""
        if plural in {found for _, _, found in SERVED}:
            return await self._objects(request, namespace, plural)
        return web.json_response(discovery(request.path))

    async def _objects(
        self, request: web.Request, namespace: str, plural: str
    ) -> web.StreamResponse:
        if "watch" in request.query:
            self.watches += 1
            response = web.StreamResponse()
            await response.prepare(request)
            for event in self.happens.get(plural, ()):
                await response.write(json.dumps(event).encode() + b"\n")
            await self._closed.wait()
            return response
        if plural == "clusters":
            self.lists[namespace] += 1
        if {namespace, plural} & self.refused:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        one = {"metadata": {"namespace": namespace, "name": "fleet", "uid": f"{namespace}-1"}}
        items = [one] if plural == "clusters" else []
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})


def discovery(path: str) -> dict[str, Any]:
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        versions = {group: {"version": version} for group, version, _ in SERVED if group}
        return {
            "groups": [
                {"name": group, "preferredVersion": version, "versions": [version]}
                for group, version in versions.items()
            ]
        }
    return {
        "resources": [
            {
                "name": plural,
                "kind": plural,
                "singularName": "",
                "namespaced": plural not in {"namespaces", "customresourcedefinitions"},
                "verbs": ["get", "list", "watch"],
            }
            for group, version, plural in SERVED
            if path == (f"/apis/{group}/{version}" if group else f"/api/{version}")
        ]
    }


class Noted:
    """A worker for a Feed. seen: Clusters with events. changed: Topics; all_of: keys of all."""

    def __init__(self) -> None:
        self.changed: list[tuple[str, str, str]] = []
        self.all_of: list[Key] = []
        self.seen: list[tuple[str, str]] = []

    def add_cluster_and_topics(self, namespace: str, cluster: str) -> None:
        self.seen.append((namespace, cluster))

    def add(self, key: Key) -> None:
        self.all_of.append(key)

    def topic_changed(self, namespace: str, cluster: str, name: str) -> None:
        self.changed.append((namespace, cluster, name))


@pytest_asyncio.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    found = kopf.ConnectionInfo(server=f"http://{host}:{port}")
    monkeypatch.setattr(handlers, "login", lambda _: found)
    yield fake
    fake.close()
    await runner.cleanup()


Begin = Callable[..., Watcher]


@pytest_asyncio.fixture
async def begin(server: FakeServer) -> AsyncIterator[Begin]:
    """Start watches of some namespaces, or all. Silent: log records would keep kopf's tasks."""
    del server
    logging.disable()
    begun = []

    def watch(worker: Noted, *namespaces: str) -> Watcher:
        feed = Feed(
            asyncio.get_running_loop(), cast("Worker", worker), cast("TopicReconciler", None)
        )
        watcher = Watcher(feed, Settings(broker_image="", namespaces=frozenset(namespaces)))
        watcher.start()
        begun.append(watcher)
        return watcher

    yield watch
    for watcher in begun:
        await asyncio.to_thread(watcher.stop, SOON_S)
    gc.collect()  # what kopf left behind, here and not in the midst of another test
    logging.disable(logging.NOTSET)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110  threads and a server have no event for it
            await asyncio.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_for_all_namespaces_a_refusal_ends_the_thread(
    server: FakeServer, begin: Begin
) -> None:
    server.refused = {"pods"}
    watcher = begin(Noted())
    await until(lambda: watcher.watching and not watcher.alive)


def changed_topic(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "air", "name": name, "uid": f"{name}-1", "resourceVersion": "2"}
    spec = {"clusterRef": {"name": "fleet"}, **spec}
    return {"type": "ADDED", "object": {"metadata": metadata, "spec": spec}}


async def test_a_topic_that_others_want_too_is_looked_at_with_all_of_them(
    server: FakeServer, begin: Begin
) -> None:
    server.happens["topics"] = [
        changed_topic("flights"),
        changed_topic("ships"),
        changed_topic("rival", topicName="flights"),
    ]
    worker = Noted()
    begin(worker)
    await until(lambda: len(worker.changed) + len(worker.all_of) == 3)
    assert ("air", "fleet", "ships") in worker.changed
    assert Key("topics", "air", "fleet") in worker.all_of


async def test_it_ends_when_told_to(server: FakeServer, begin: Begin) -> None:
    watcher = begin(Noted(), "air", "sea")
    await until(lambda: server.watches == 2 * KINDS)
    assert watcher.watching
    await asyncio.to_thread(watcher.stop, SOON_S)
    assert not watcher.alive


async def test_a_namespace_that_is_gone_ends_no_other(
    server: FakeServer, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "RESTART_S", 0.0)
    server.refused = {"air"}
    worker = Noted()
    watcher = begin(worker, "air", "sea")
    await until(lambda: server.lists["air"] > 2 and server.watches == KINDS and bool(worker.seen))
    assert watcher.alive
    assert watcher.watching  # so that the operator is ready
    assert worker.seen == [("sea", "fleet")]
    server.refused.clear()
    await until(lambda: ("air", "fleet") in worker.seen)
    assert server.lists["sea"] == 1
