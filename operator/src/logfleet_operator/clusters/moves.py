"""Replicas are moved by the brokers; this asks them, one step at each look. SHELL.

What is to be moved is planned anew at each step from what is there (`logfleet.operations.rebalancing`), so that nothing is lost with the operator.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, Protocol

import structlog
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.cordons import set_cordons
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.features import describe_level, raise_level
from logfleet.client.unregistering import unregister_broker
from logfleet.control.balance.load import Plan
from logfleet.control.brokers.feature_level import FeatureLevel
from logfleet.operations.rebalancing import Goal, Progress, advance, finish, make_plan, stop
from logfleet.resources.cluster import ClusterResource
from logfleet.wire.errors import ErrorCode

from logfleet_operator import names
from logfleet_operator.clusters import manifests, shrinking
from logfleet_operator.clusters.broker_id_ranges import Range
from logfleet_operator.clusters.observed import Fleet, ObservedCluster
from logfleet_operator.clusters.plan import leaving_brokers
from logfleet_operator.lease_holder import LeaseHolder, LeaseLost
from logfleet_operator.waiting import elsewhere

REQUEST_TIMEOUT_MS: Final = 10_000
TOLD_MAX: Final = 3
"""Partitions that are named of those that cannot be moved."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class MovesUnavailable(Exception):
    """No broker did in time what was asked. The text says why."""


class Movers(Protocol):
    """The brokers of a fleet. All raise MovesUnavailable."""

    async def held(self, bootstrap: str) -> Mapping[int, int]:
        """How many replicas each broker has, those that move to it and from it counted."""
        ...

    async def step(self, bootstrap: str, goal: Goal) -> Progress:
        """Begin what may begin now; how far it is. Brokers that leave are given nothing new from now on. Leaders and throttles are put right after the last move."""
        ...

    async def propose(self, bootstrap: str, goal: Goal) -> Plan:
        """What would be moved. Changes nothing."""
        ...

    async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
        """What is under way goes back to where it was, throttles go; why not, of what cannot be called back."""
        ...

    async def take_back(self, bootstrap: str, broker_ids: Collection[int]) -> None:
        """Let these be given replicas again."""
        ...

    async def forget(self, bootstrap: str, broker_id: int) -> None:
        """No broker of that id is known any more."""
        ...

    async def stopped(self, bootstrap: str) -> Collection[int]:
        """Ids of the brokers that are registered and do not run (Kafka: fenced, KIP-1073)."""
        ...

    async def level(self, bootstrap: str) -> FeatureLevel:
        """The feature level that holds, and the highest that all brokers can do."""
        ...

    async def raise_level(self, bootstrap: str, level: int) -> None:
        """Have the feature level raised, which all brokers must be able to do; nothing if it is so already."""
        ...


class FleetMovers:
    """By Kafka's admin APIs. leadership: changes need its Lease."""

    def __init__(self, leadership: LeaseHolder | None) -> None:
        self._leadership = leadership

    async def held(self, bootstrap: str) -> Mapping[int, int]:
        async with _asked(bootstrap) as client:
            topics = await Admin(client).list_topics()
            return Counter(
                each
                for topic in topics
                for partition in topic.partitions
                for each in partition.replicas
            )

    async def step(self, bootstrap: str, goal: Goal) -> Progress:
        async with self._changing(bootstrap) as client:
            serving = {node.id for node in (await Admin(client).describe_cluster()).brokers}
            await set_cordons(Admin(client), sorted(goal.leaving & serving), cordoned=True)
            progress = await advance(client, goal)
            if progress.is_over:
                await finish(client, goal)
            return progress

    async def propose(self, bootstrap: str, goal: Goal) -> Plan:
        async with _asked(bootstrap) as client:
            return await make_plan(client, goal)

    async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
        async with self._changing(bootstrap) as client:
            return await stop(client, goal)

    async def take_back(self, bootstrap: str, broker_ids: Collection[int]) -> None:
        async with self._changing(bootstrap) as client:
            await set_cordons(Admin(client), broker_ids, cordoned=False)

    async def forget(self, bootstrap: str, broker_id: int) -> None:
        async with self._changing(bootstrap) as client:
            try:
                await unregister_broker(client, broker_id)
            except KafkaError as error:
                if error.code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                    raise

    async def stopped(self, bootstrap: str) -> Collection[int]:
        async with _asked(bootstrap) as client:
            return (await Admin(client).describe_cluster(include_fenced=True)).fenced

    async def level(self, bootstrap: str) -> FeatureLevel:
        async with _asked(bootstrap) as client:
            return await describe_level(client)

    async def raise_level(self, bootstrap: str, level: int) -> None:
        async with self._changing(bootstrap) as client:
            await raise_level(client, level)

    @contextlib.asynccontextmanager
    async def _changing(self, bootstrap: str) -> AsyncIterator[Client]:
        async with contextlib.AsyncExitStack() as stack:
            if self._leadership is not None:
                try:
                    await stack.enter_async_context(self._leadership.guard())
                except LeaseLost as error:
                    raise MovesUnavailable(str(error)) from error
            yield await stack.enter_async_context(_asked(bootstrap))


@contextlib.asynccontextmanager
async def _asked(bootstrap: str) -> AsyncIterator[Client]:
    """A client for one question; its errors are told as MovesUnavailable."""
    client = Client(
        bootstrap,
        client_id=names.FIELD_MANAGER,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        with elsewhere():
            yield client
    except ClientError as error:
        raise MovesUnavailable(str(error)) from error
    finally:
        client.close()


class Relocation:
    """What of a Cluster's replicas has to move because there are more or fewer brokers."""

    def __init__(self, movers: Movers) -> None:
        self._movers = movers

    async def look(self, cluster: ClusterResource, observed: ObservedCluster) -> Fleet | None:
        """Take brokers that are to leave, and are marked so, a step nearer to being empty.

        None while nobody leaves or has left, and if no broker answers. Raises ObjectConflict.
        """
        marked = shrinking.marked_ids(cluster, observed)
        if not marked:
            return None
        leaving = marked & leaving_brokers(cluster, observed)
        bootstrap = manifests.bootstrap_address(cluster)
        try:
            # Before the step: one that begins with nothing left ends the moves, and with them their throttle.
            held, said = await self._movers.held(bootstrap), ""
            if leaving:
                said = _said(await self._movers.step(bootstrap, _goal(cluster, leaving)))
            return Fleet(held, said)
        except MovesUnavailable as error:
            log.warning("replicas_not_moved", cluster=cluster.metadata.name, error=str(error))
            return None

    async def spread(self, cluster: ClusterResource) -> str | None:
        """Give brokers that are new a step more of their share; how far it is, None once it is done."""
        bootstrap = manifests.bootstrap_address(cluster)
        try:
            progress = await self._movers.step(bootstrap, _goal(cluster, frozenset()))
        except MovesUnavailable as error:
            log.warning("replicas_not_moved", cluster=cluster.metadata.name, error=str(error))
            return f"no broker moves replicas: {error}"
        return None if progress.is_done else _said(progress)

    async def take_back(self, cluster: ClusterResource, broker_ids: Collection[int]) -> None:
        """Raises MovesUnavailable."""
        await self._movers.take_back(manifests.bootstrap_address(cluster), broker_ids)

    async def forget(self, cluster: ClusterResource, broker_id: int) -> None:
        """Raises MovesUnavailable."""
        await self._movers.forget(manifests.bootstrap_address(cluster), broker_id)

    async def forget_strangers(
        self, cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[Range]
    ) -> list[int]:
        """Have brokers forgotten that have stopped and that no pod will be any more; returns their ids.

        So it is with one whose volume claim, on which it stands how far it is, was deleted by hand
        before it had gone. One that holds replicas stays, the brokers see to that.
        """
        bootstrap, forgotten = manifests.bootstrap_address(cluster), []
        ours = {broker_id for broker_id, _ in manifests.broker_pods(cluster, ranges)}
        try:
            stopped = await self._movers.stopped(bootstrap)
            for broker_id in sorted({*stopped} - ours - shrinking.marked_ids(cluster, observed)):
                await self._movers.forget(bootstrap, broker_id)
                forgotten.append(broker_id)
        except MovesUnavailable as error:
            log.warning("brokers_not_forgotten", cluster=cluster.metadata.name, error=str(error))
        return forgotten


def _goal(cluster: ClusterResource, leaving: frozenset[int]) -> Goal:
    return Goal(leaving=leaving, throttle=cluster.spec.scaling.bytes_per_s)


def _said(progress: Progress) -> str:
    said = (
        f"{progress.under_way} partitions move, {progress.bytes_left >> 20} MiB are left of them; "
        f"{progress.planned} wait, {progress.planned_bytes >> 20} MiB"
    )
    return "; ".join((said, *progress.unmet[:TOLD_MAX], *progress.refused[:TOLD_MAX]))
