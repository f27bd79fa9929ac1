"""Asks the brokers to move replicas, one step per pass. SHELL.

Each step plans again from the current state (`logfleet.balance.rebalancing`), so nothing is lost
when the operator stops.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, Protocol

import structlog
from logfleet.balance.load import Plan
from logfleet.balance.rebalancing import Goal, Progress, advance, finish, make_plan, stop
from logfleet.client.admin import Admin
from logfleet.client.brokers.cordons import set_cordons
from logfleet.client.brokers.unregistering import unregister_broker
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.features import describe_level, raise_level
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterResource
from logfleet.wire.errors import ErrorCode

from logfleet_operator import names
from logfleet_operator.clusters import manifests, shrinking
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.observed import Fleet, ObservedCluster
from logfleet_operator.clusters.plan import leaving_brokers
from logfleet_operator.lease_holder import LeaseHolder, LeaseLost
from logfleet_operator.waiting import waiting_for_fleet

REQUEST_TIMEOUT_MS: Final = 10_000
NAMED_MAX: Final = 3
"""Number of partitions that cannot be moved and are named."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class MovesUnavailable(Exception):
    """No broker did what was asked in time. The message says why."""


class Movers(Protocol):
    """Has the brokers of a fleet move replicas. All methods raise MovesUnavailable."""

    async def replica_counts(self, bootstrap: str) -> Mapping[int, int]:
        """The number of replicas of each broker, including those that move to it or from it."""
        ...

    async def step(self, bootstrap: str, goal: Goal) -> Progress:
        """Start the moves that may start now, and return the progress.

        Brokers that leave are cordoned from now on. After the last move leaders and throttles are
        put right.
        """
        ...

    async def propose(self, bootstrap: str, goal: Goal) -> Plan:
        """Plan the moves. Changes nothing."""
        ...

    async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
        """Cancel the moves under way and remove throttles; return why some cannot be cancelled."""
        ...

    async def uncordon(self, bootstrap: str, broker_ids: Collection[int]) -> None:
        """Uncordon these brokers, so that they get replicas again."""
        ...

    async def unregister(self, bootstrap: str, broker_id: int) -> None:
        """Unregister this broker id."""
        ...

    async def stopped(self, bootstrap: str) -> Collection[int]:
        """Ids of the brokers that are registered but not running (Kafka: fenced, KIP-1073)."""
        ...

    async def level(self, bootstrap: str) -> FeatureLevel:
        """The finalized feature level, and the highest that all brokers support."""
        ...

    async def raise_level(self, bootstrap: str, level: int) -> None:
        """Raise the feature level, which all brokers must support; no change if it is reached."""
        ...


class FleetMovers:
    """Movers by Kafka's admin APIs. leadership: the Lease that changes need, None without one."""

    def __init__(self, leadership: LeaseHolder | None) -> None:
        self._leadership = leadership

    async def replica_counts(self, bootstrap: str) -> Mapping[int, int]:
        async with _client(bootstrap) as client:
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
        async with _client(bootstrap) as client:
            return await make_plan(client, goal)

    async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
        async with self._changing(bootstrap) as client:
            return await stop(client, goal)

    async def uncordon(self, bootstrap: str, broker_ids: Collection[int]) -> None:
        async with self._changing(bootstrap) as client:
            await set_cordons(Admin(client), broker_ids, cordoned=False)

    async def unregister(self, bootstrap: str, broker_id: int) -> None:
        async with self._changing(bootstrap) as client:
            try:
                await unregister_broker(client, broker_id)
            except KafkaError as error:
                if error.code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                    raise

    async def stopped(self, bootstrap: str) -> Collection[int]:
        async with _client(bootstrap) as client:
            return (await Admin(client).describe_cluster(include_fenced=True)).fenced

    async def level(self, bootstrap: str) -> FeatureLevel:
        async with _client(bootstrap) as client:
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
            yield await stack.enter_async_context(_client(bootstrap))


@contextlib.asynccontextmanager
async def _client(bootstrap: str) -> AsyncIterator[Client]:
    """A client for one request; raises its errors as MovesUnavailable."""
    client = Client(
        bootstrap,
        client_id=names.FIELD_MANAGER,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        with waiting_for_fleet():
            yield client
    except ClientError as error:
        raise MovesUnavailable(str(error)) from error
    finally:
        client.close()


class Relocation:
    """Moves a Cluster's replicas when brokers are added or removed."""

    def __init__(self, movers: Movers) -> None:
        self._movers = movers

    async def drain_step(self, cluster: ClusterResource, observed: ObservedCluster) -> Fleet | None:
        """Move replicas off the brokers that are marked to leave, one step further.

        None if no broker leaves or has left, or if none answers. Raises ObjectConflict.
        """
        marked = shrinking.marked_ids(cluster, observed)
        if not marked:
            return None
        leaving = marked & leaving_brokers(cluster, observed)
        bootstrap = manifests.bootstrap_address(cluster)
        try:
            # Before the step: a step that finds nothing left ends the moves, and their throttle.
            counts, progress = await self._movers.replica_counts(bootstrap), ""
            if leaving:
                progress = _sentence(await self._movers.step(bootstrap, _goal(cluster, leaving)))
            return Fleet(counts, progress)
        except MovesUnavailable as error:
            log.warning("replicas_not_moved", cluster=cluster.metadata.name, error=str(error))
            return None

    async def spread(self, cluster: ClusterResource) -> str | None:
        """Move replicas to new brokers, one step further; return the progress, None once done."""
        bootstrap = manifests.bootstrap_address(cluster)
        try:
            progress = await self._movers.step(bootstrap, _goal(cluster, frozenset()))
        except MovesUnavailable as error:
            log.warning("replicas_not_moved", cluster=cluster.metadata.name, error=str(error))
            return f"no broker moves replicas: {error}"
        return None if progress.is_done else _sentence(progress)

    async def uncordon(self, cluster: ClusterResource, broker_ids: Collection[int]) -> None:
        """Raises MovesUnavailable."""
        await self._movers.uncordon(manifests.bootstrap_address(cluster), broker_ids)

    async def unregister(self, cluster: ClusterResource, broker_id: int) -> None:
        """Unregister the broker. Raises MovesUnavailable."""
        await self._movers.unregister(manifests.bootstrap_address(cluster), broker_id)

    async def unregister_leftovers(
        self, cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
    ) -> list[int]:
        """Unregister brokers that have stopped and whose pod will not come back; return their ids.

        This is for a broker whose volume claim, which holds its drain state, was deleted by hand
        too early. The brokers refuse to unregister one that has replicas.
        """
        bootstrap, unregistered = manifests.bootstrap_address(cluster), []
        ours = {broker_id for broker_id, _ in manifests.broker_pods(cluster, ranges)}
        try:
            stopped = await self._movers.stopped(bootstrap)
            for broker_id in sorted({*stopped} - ours - shrinking.marked_ids(cluster, observed)):
                await self._movers.unregister(bootstrap, broker_id)
                unregistered.append(broker_id)
        except MovesUnavailable as error:
            log.warning("brokers_not_forgotten", cluster=cluster.metadata.name, error=str(error))
        return unregistered


def _goal(cluster: ClusterResource, leaving: frozenset[int]) -> Goal:
    return Goal(leaving=leaving, throttle=cluster.spec.scaling.bytes_per_s)


def _sentence(progress: Progress) -> str:
    sentence = (
        f"{progress.under_way} partitions move, {progress.bytes_left >> 20} MiB are left of them; "
        f"{progress.planned} wait, {progress.planned_bytes >> 20} MiB"
    )
    return "; ".join((sentence, *progress.unmet[:NAMED_MAX], *progress.refused[:NAMED_MAX]))
