"""kopf watches, and turns every event into a key for the queue. SHELL.

Only `on.event` handlers are used: they leave no finalizer, annotation or progress in the objects
that they see, so nothing hangs when the operator is gone. kopf runs in a thread with an event loop
of its own, because it treats all tasks of its loop as its own. Each scope has its own kopf, because
a refusal in one namespace ends the whole kopf.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import kopf
import structlog
from kopf._core.engines.peering import Identity
from logfleet.resources.document import GROUP, VERSION

from logfleet_operator.conditions import ready_as_written
from logfleet_operator.credentials import login
from logfleet_operator.names import CLUSTER_LABEL, FIELD_MANAGER
from logfleet_operator.settings import Settings
from logfleet_operator.topics.ledger import policy_of
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.worker import Key, Worker

# Kinds that a Cluster owns and whose events cause an early reconcile: (group, version, plural).
OWNED: Final = (
    ("apps", "v1", "statefulsets"),
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("policy", "v1", "poddisruptionbudgets"),
)
TopicClaim = tuple[str, str, str]
"""Namespace, Cluster, and the name in Kafka that a Topic wants."""
ClaimIndex = Mapping[TopicClaim, Collection[str]]
"""uids of the Topics that want it, from kopf's index.

The index holds what the watches have seen, so nothing is deleted because of it."""
# kopf retries for a minute before it gives up; `resync` finds what a namespace's watches miss
# meanwhile.
RESTART_S: Final = 30.0
CANCEL_AGAIN_S: Final = 1.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Feed:
    """Passes events to the worker's loop. Called from kopf's threads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, worker: Worker, topics: TopicReconciler
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._topics = topics

    def cluster(self, metadata: Mapping[str, Any]) -> None:
        self._call(self._worker.add_cluster_and_topics, metadata["namespace"], metadata["name"])

    def topic(self, kind: str | None, body: Mapping[str, Any], *, rivals: int = 0) -> None:
        """Queue a Topic, or all Topics of its Cluster.

        kind: of the event, None during the initial listing. rivals: how many other Topics want the
        same topic.
        """
        metadata = body["metadata"]
        cluster = body["spec"]["clusterRef"]["name"]
        if kind == "MODIFIED" and ready_as_written(body):
            return  # our own status write, or a label
        if kind in {"ADDED", "MODIFIED"} and not rivals:
            name = metadata["name"]
            self._call(self._worker.topic_changed, metadata["namespace"], cluster, name)
            return
        if kind == "DELETED":
            place = metadata["namespace"], cluster
            # Pass on the object's last state, since a pass may never have read it like that.
            self._call(self._topics.on_topic_deleted, place, metadata["uid"], policy_of(body))
        self._call(self._worker.add, Key("topics", metadata["namespace"], cluster))

    def rebalance(self, metadata: Mapping[str, Any]) -> None:
        self._call(self._worker.add, Key("rebalance", metadata["namespace"], metadata["name"]))

    def owned(self, metadata: Mapping[str, Any]) -> None:
        cluster = metadata["labels"][CLUSTER_LABEL]
        self._call(self._worker.add_cluster_and_topics, metadata["namespace"], cluster)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def claim_of(body: Mapping[str, Any]) -> TopicClaim:
    """The claim of a Topic, whether or not the rest of it is valid."""
    metadata, spec = body["metadata"], body["spec"]
    name = spec.get("topicName") or metadata["name"]
    return str(metadata["namespace"]), str(spec["clusterRef"]["name"]), str(name)


def registry(feed: Feed) -> kopf.OperatorRegistry:
    """The handlers, one for each kind that is watched."""
    result = kopf.OperatorRegistry()

    @kopf.on.login(registry=result)
    def log_in(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo:
        return login(settings)

    @kopf.on.event(GROUP, VERSION, "clusters", registry=result)
    def cluster_event(meta: kopf.Meta, **_: Any) -> None:
        feed.cluster(meta)

    @kopf.index(GROUP, VERSION, "topics", id="topic_claims", registry=result)
    def topic_claims(body: kopf.Body, **_: Any) -> dict[TopicClaim, str]:
        return {claim_of(body): str(body["metadata"]["uid"])}

    @kopf.on.event(GROUP, VERSION, "topics", registry=result)
    def topic_event(event: Mapping[str, Any], body: kopf.Body, **given: Any) -> None:
        claims: ClaimIndex = given["topic_claims"]  # kopf hands indices over by their names
        uids = set(claims.get(claim_of(body), ()))
        feed.topic(event["type"], body, rivals=len(uids - {body["metadata"]["uid"]}))

    @kopf.on.event(GROUP, VERSION, "rebalances", registry=result)
    def rebalance_event(meta: kopf.Meta, **_: Any) -> None:
        feed.rebalance(meta)

    def owned_event(meta: kopf.Meta, **_: Any) -> None:
        feed.owned(meta)

    for group, version, plural in OWNED:
        watch = kopf.on.event(
            group, version, plural, labels={CLUSTER_LABEL: kopf.PRESENT}, registry=result
        )
        watch(owned_event)
    return result


def watch_settings() -> kopf.OperatorSettings:
    """Kopf's settings: time limits on all connections (a dead watch must be noticed), no Events."""
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


class Watch:
    """kopf for one scope, in its thread. namespace: "" for all. started: set before its first list.

    When a namespace is deleted, the operator's Role in it goes too, and the refusal (403) ends
    kopf. It is restarted every RESTART_S, so that it watches again once the namespace is back. An
    error that ends kopf for all namespaces ends the thread.
    """

    def __init__(self, feed: Feed, namespace: str) -> None:
        self._registry = registry(feed)
        self._settings = watch_settings()
        self._namespace = namespace
        self._stop = threading.Event()
        self._over = threading.Event()
        self.started = threading.Event()
        name = f"watches {namespace}".rstrip()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> None:
        """Ask kopf and the thread to end."""
        self._stop.set()
        self._over.set()

    def _run(self) -> None:
        while True:
            try:
                asyncio.run(self._watch())
            except Exception as error:  # the supervisor: one namespace must not stop the others
                if not self._namespace:
                    raise
                log.warning(
                    "watches_ended",
                    namespace=self._namespace,
                    error=repr(error),
                    retry_s=RESTART_S,
                )
            if not self._namespace or self._stop.wait(RESTART_S):
                return

    async def _watch(self) -> None:
        """Watch until `stop` is called. Raises the error that ends kopf."""
        self._over.clear()
        if self._stop.is_set():  # `stop` may have come before `clear`
            self._over.set()
        roots = await kopf.spawn_tasks(
            registry=self._registry,
            settings=self._settings,
            # Without an identity kopf looks up the user's name, and a pod's user has none.
            identity=Identity(FIELD_MANAGER),
            standalone=True,
            clusterwide=not self._namespace,
            namespaces=[self._namespace] if self._namespace else [],
            stop_flag=self._over,
            ready_flag=self.started,
        )
        ended, _ = await asyncio.wait(roots, return_when=asyncio.FIRST_COMPLETED)
        # kopf waits for this event in an executor's thread, and asyncio.run for that thread.
        self._over.set()
        await _end_all(roots)
        await asyncio.gather(*ended)


async def _end_all(roots: Collection[asyncio.Task[None]]) -> None:
    """Cancel kopf's root tasks, then all other tasks of the loop, until none is left.

    `kopf.run_tasks` cancels the rest only once and may wait for ever: a watch that is cancelled
    together with the task that waits for its pause takes this for the pause (kopf,
    _cogs/clients/api.py, `stream`), goes on and waits for credentials that nobody provides any
    more.
    """
    left = set(roots)
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        left = asyncio.all_tasks() - {asyncio.current_task()}


class Watcher:
    """The watches of all scopes.

    watching: kopf has started in every scope, whether or not the API server allows the watch. It is
    set before the first request, so a deleted namespace does not delay it, and it stays set.
    alive: no thread has ended.
    """

    def __init__(self, feed: Feed, settings: Settings) -> None:
        self._watches = [Watch(feed, namespace) for namespace in settings.scopes]

    @property
    def watching(self) -> bool:
        return all(watch.started.is_set() for watch in self._watches)

    @property
    def alive(self) -> bool:
        return all(watch.thread.is_alive() for watch in self._watches)

    def start(self) -> None:
        for watch in self._watches:
            watch.thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ask kopf to end, if started, and wait; its threads do not keep the process alive."""
        until = time.monotonic() + timeout_s
        for watch in self._watches:
            watch.stop()
        for watch in self._watches:
            if watch.thread.is_alive():
                watch.thread.join(max(0.0, until - time.monotonic()))
