"""kopf watches, and turns every event into a key for the queue. SHELL.

Only `on.event` handlers are used: they leave no finalizer, no annotation and no progress in the
objects they see, so nothing hangs when the operator is gone. kopf runs in a thread with a loop of
its own, since it takes every task of its loop for its own and cancels them when it ends.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import kopf
from kopf._core.engines.peering import Identity
from logfleet.resources.document import GROUP, VERSION

from logfleet_operator.credentials import login
from logfleet_operator.ledger import policy_of
from logfleet_operator.names import CLUSTER_LABEL, FIELD_MANAGER
from logfleet_operator.settings import Settings
from logfleet_operator.topic_reconciler import TopicReconciler
from logfleet_operator.worker import Key, Worker

# What a Cluster owns and whose events are worth an early look: (group, version, plural).
OWNED: Final = (
    ("apps", "v1", "statefulsets"),
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("policy", "v1", "poddisruptionbudgets"),
)
CANCEL_AGAIN_S: Final = 1.0


class Feed:
    """Hands events over to the worker's loop. Called from kopf's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, worker: Worker, topics: TopicReconciler
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._topics = topics

    def cluster(self, metadata: Mapping[str, Any]) -> None:
        self._call(self._worker.add_both, metadata["namespace"], metadata["name"])

    def topic(self, kind: str | None, body: Mapping[str, Any]) -> None:
        metadata = body["metadata"]
        cluster = body["spec"]["clusterRef"]["name"]
        if kind == "DELETED":
            place = metadata["namespace"], cluster
            # The object as it was last, also if no pass ever read it like that.
            self._call(self._topics.saw_deletion, place, metadata["uid"], policy_of(body))
        self._call(self._worker.add, Key("topics", metadata["namespace"], cluster))

    def owned(self, metadata: Mapping[str, Any]) -> None:
        cluster = metadata["labels"][CLUSTER_LABEL]
        self._call(self._worker.add, Key("cluster", metadata["namespace"], cluster))

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def registry(feed: Feed) -> kopf.OperatorRegistry:
    """The handlers: what is watched, and nothing else."""
    result = kopf.OperatorRegistry()

    @kopf.on.login(registry=result)
    def log_in(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo:
        return login(settings)

    @kopf.on.event(GROUP, VERSION, "clusters", registry=result)
    def cluster_event(meta: kopf.Meta, **_: Any) -> None:
        feed.cluster(meta)

    @kopf.on.event(GROUP, VERSION, "topics", registry=result)
    def topic_event(event: Mapping[str, Any], body: kopf.Body, **_: Any) -> None:
        feed.topic(event["type"], body)

    def owned_event(meta: kopf.Meta, **_: Any) -> None:
        feed.owned(meta)

    for group, version, plural in OWNED:
        watch = kopf.on.event(
            group, version, plural, labels={CLUSTER_LABEL: kopf.PRESENT}, registry=result
        )
        watch(owned_event)
    return result


def watch_settings() -> kopf.OperatorSettings:
    """Time limits on every connection (a watch that dies silently must be noticed), no Events."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 90
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.enforce_retry_after = True
    for group, version, plural in OWNED:
        key = f"{plural}.{version}.{group}" if group else f"{plural}.{version}"
        settings.watching.label_selectors[key] = CLUSTER_LABEL
    return settings


class Watcher:
    """kopf in its thread. watching: it has begun, which it says before its first request."""

    def __init__(self, feed: Feed, settings: Settings) -> None:
        self._feed = feed
        self._settings = settings
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)

    @property
    def watching(self) -> bool:
        return self._ready.is_set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ask kopf to end, if it was started, and wait; its thread never keeps the process alive."""
        self._stop.set()
        if self.alive:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        """Return when `stop` is called. Raises what ends kopf."""
        roots = await kopf.spawn_tasks(
            registry=registry(self._feed),
            settings=watch_settings(),
            # Without a name of its own kopf asks for the user's, and a pod's user has none.
            identity=Identity(FIELD_MANAGER),
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=sorted(self._settings.namespaces),
            stop_flag=self._stop,
            ready_flag=self._ready,
        )
        ended, _ = await asyncio.wait(roots, return_when=asyncio.FIRST_COMPLETED)
        # kopf waits for it in an executor's thread, and asyncio.run for that thread.
        self._stop.set()
        await _end_all(roots)
        await asyncio.gather(*ended)


async def _end_all(roots: Collection[asyncio.Task[None]]) -> None:
    """Cancel kopf's root tasks, then what they leave in the loop, until nothing is left.

    `kopf.run_tasks` cancels the rest once and waits for ever: a watch that is cancelled together
    with its waiter for a pause takes this for the pause (kopf, _cogs/clients/api.py, `stream`), goes
    on and waits for credentials, which nobody brings any more.
    """
    left = set(roots)
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        left = asyncio.all_tasks() - {asyncio.current_task()}
