"""Takes keys from the queue and has them reconciled, several at a time. SHELL.

All errors are caught here and nowhere else: a missing response or a conflicting write is retried
after a delay; so is a bug, with its traceback in the log. Every RESYNC_S all resources are checked
again, so a lost event only delays something.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import structlog

from logfleet_operator.clusters.cluster_reconciler import ClusterReconciler
from logfleet_operator.kube import Kube, KubeConflict, KubeError, KubeUnavailable
from logfleet_operator.metrics import Metrics
from logfleet_operator.queue import WorkQueue
from logfleet_operator.rebalances.rebalance_reconciler import RebalanceReconciler
from logfleet_operator.settings import Settings
from logfleet_operator.topics.pending import Pending
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.waiting import Waiting

# Not counting keys that wait for their fleet.
AT_ONCE_MAX: Final = 8
RESYNC_S: Final = 60.0
RESYNC_RETRY_S: Final = 5.0
# The dispatcher runs at least this often; /healthz checks when it last did.
TICK_S: Final = 5.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Key(NamedTuple):
    """A Cluster, all Topics of a Cluster (which need not exist), or a Rebalance."""

    what: Literal["cluster", "topics", "rebalance"]
    namespace: str
    name: str


class Worker:
    """ticked: when the dispatcher last ran. synced: all resources in scope were listed once."""

    def __init__(
        self,
        kube: Kube,
        clusters: ClusterReconciler,
        topics: TopicReconciler,
        rebalances: RebalanceReconciler,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._clusters = clusters
        self._topics = topics
        self._rebalances = rebalances
        self._settings = settings
        self._clock = clock
        self._wake = asyncio.Event()
        self._waiting = Waiting(self._wake.set)
        self.queue: WorkQueue[Key] = WorkQueue()
        self._topics_due: dict[Key, Pending] = {}
        self.metrics = Metrics(self.queue, clock)
        self.ticked = clock()
        self.synced = False

    def add(self, key: Key, *, after: float = 0.0) -> None:
        """Reconcile `key` soon; a key of Topics means all Topics of that Cluster.

        To be called from the loop's own thread only.
        """
        now = self._clock()
        if key.what == "topics":
            self._pending(key).all_due(now + after)
        self.queue.add(key, now, after=after)
        self._wake.set()

    def topic_changed(self, namespace: str, cluster: str, name: str) -> None:
        """Reconcile one Topic of a Cluster soon."""
        key = Key("topics", namespace, cluster)
        self._pending(key).change(name)
        self.queue.add(key, self._clock())
        self._wake.set()

    def _pending(self, key: Key) -> Pending:
        return self._topics_due.setdefault(key, Pending())

    def add_cluster_and_topics(self, namespace: str, cluster: str) -> None:
        """Reconcile a Cluster and its Topics."""
        self.add(Key("cluster", namespace, cluster))
        self.add(Key("topics", namespace, cluster))

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resync_forever())
            while True:
                now = self.ticked = self._clock()
                self._wake.clear()
                while not self._is_busy:
                    key = self.queue.take(now)
                    if key is None:
                        break
                    tasks.create_task(self.work_on(key))
                due = self.queue.next_due()
                pause = TICK_S if due is None else min(TICK_S, max(0.0, due - now))
                if self._is_busy:
                    pause = TICK_S
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    @property
    def _is_busy(self) -> bool:
        return len(self.queue.working) - self._waiting.count >= AT_ONCE_MAX

    async def work_on(self, key: Key) -> None:
        """Reconcile a key that was taken from the queue, and return it to the queue."""
        started = self._clock()
        result = "failed"
        try:
            with self._waiting.counted():
                after = await self._reconcile(key)
            self.queue.done(key)
            result = "done"
            if after is not None:
                self.add(key, after=after)
        except (KubeConflict, KubeUnavailable) as error:
            self._retry(key, "reconcile_postponed", error)
        except KubeError as error:
            self._retry(key, "reconcile_refused", error)
        except Exception:  # the supervisor: a bug in one resource must not stop the others
            delay = self._failed(key)
            log.exception("reconcile_broken", **key._asdict(), retry_s=delay)
        finally:
            self.metrics.observe(key.what, result, self._clock() - started)
            self._wake.set()

    def _retry(self, key: Key, event: str, error: Exception) -> None:
        delay = self._failed(key)
        log.warning(event, **key._asdict(), error=str(error), retry_s=delay)

    def _failed(self, key: Key) -> float:
        """Queue a retry and return its delay in seconds; all Topics of the Cluster are due then."""
        delay = self.queue.failed(key, self._clock())
        if key.what == "topics":
            self._pending(key).all_due(self._clock())
        return delay

    async def _reconcile(self, key: Key) -> float | None:
        if key.what == "cluster":
            return await self._clusters.reconcile(key.namespace, key.name)
        if key.what == "rebalance":
            return await self._rebalances.reconcile(key.namespace, key.name)
        few = self._pending(key).take(self._clock())
        if few is not None:
            return await self._reconcile_few(key, few)
        try:
            after, refused = await self._topics.reconcile(key.namespace, key.name)
        finally:  # pass on what was found even if the pass failed
            self._pass_to_cluster(key)
        for error in refused.values():
            if after is not None:  # the other Topics need not wait for the retry of the refused one
                self.add(key, after=after)
            raise error
        return after

    async def _reconcile_few(self, key: Key, few: frozenset[str]) -> float | None:
        """Reconcile single Topics; return the delay until all are due.

        The delay is 0 if they cannot be judged without the others.
        """
        if not await self._topics.reconcile_few(key.namespace, key.name, few):
            return 0.0
        due = self._pending(key).all_at
        return None if due is None else max(0.0, due - self._clock())

    def _pass_to_cluster(self, key: Key) -> None:
        cluster = key.namespace, key.name
        notice = self._topics.notices.get(cluster, "")
        partition_health = self._topics.partition_health.get(cluster)
        warning = self._topics.warnings.get(cluster, "")
        before = (
            self._clusters.notices.get(cluster, ""),
            self._clusters.partition_health.get(cluster),
            self._clusters.warnings.get(cluster, ""),
        )
        if before != (notice, partition_health, warning):
            self._clusters.notices[cluster] = notice
            self._clusters.partition_health[cluster] = partition_health
            self._clusters.warnings[cluster] = warning
            self.add(Key("cluster", *cluster))

    async def _resync_forever(self) -> None:
        while True:
            try:
                await self.resync()
                pause = RESYNC_S
            except (KubeError, KubeUnavailable) as error:
                log.warning("resync_postponed", error=str(error), retry_s=RESYNC_RETRY_S)
                pause = RESYNC_RETRY_S
            except Exception:  # as in work_on: a bug here must not stop all other work
                log.exception("resync_broken", retry_s=RESYNC_RETRY_S)
                pause = RESYNC_RETRY_S
            await asyncio.sleep(pause)

    async def resync(self) -> None:
        """Queue everything in scope, except named namespaces that refuse (403, 404).

        A deleted namespace takes the operator's Role with it; the others must not wait for its
        return. Raises KubeUnavailable, and KubeError if all namespaces refuse.
        """
        refused: dict[str, KubeError] = {}
        for namespace in self._settings.scopes:
            try:
                await self._add_all(namespace)
            except KubeError as error:
                if error.status not in {403, 404}:
                    raise
                refused[namespace] = error
        if len(refused) == len(self._settings.scopes):
            raise next(iter(refused.values()))
        for namespace, refusal in refused.items():
            log.warning("namespace_refused", namespace=namespace, error=str(refusal))
        self.synced = True

    async def _add_all(self, namespace: str) -> None:
        for cluster in await self._kube.list("Cluster", namespace):
            metadata = cluster["metadata"]
            self.add_cluster_and_topics(metadata["namespace"], metadata["name"])
        for topic in await self._kube.list("Topic", namespace):
            cluster_name = topic["spec"]["clusterRef"]["name"]
            self.add(Key("topics", topic["metadata"]["namespace"], cluster_name))
        for rebalance in await self._kube.list("Rebalance", namespace):
            metadata = rebalance["metadata"]
            self.add(Key("rebalance", metadata["namespace"], metadata["name"]))
