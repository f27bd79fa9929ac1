"""Unreachable fleets, as behind a NetworkPolicy, and what they cost others, with a real worker."""

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import parse_cluster
from logfleet.resources.plan import DeleteTopic
from logfleet_operator import waiting as waiting_module
from logfleet_operator.admin import Admin
from logfleet_operator.brokers import BrokerAdmins
from logfleet_operator.clusters import certificates
from logfleet_operator.clusters.cluster_reconciler import ClusterReconciler
from logfleet_operator.clusters.etcd_client import Access, EtcdClients
from logfleet_operator.clusters.may_i import AdminPorts
from logfleet_operator.clusters.moves import FleetMovers
from logfleet_operator.rebalances.rebalance_reconciler import RebalanceReconciler
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.waiting import Waiting, waiting_for_fleet
from logfleet_operator.worker import AT_ONCE_MAX, Worker

from .operation import SETTINGS, Operation, cluster, topic
from .world import NAMESPACE, Manifest, World

pytestmark = pytest.mark.asyncio

UNREACHABLE = 20
HEALTHY = "healthy"
# A pass over one that nobody reaches takes more than 10 s.
SOON_S = 5.0
OUTSIDE = {"metadata": {"endpoints": ["etcd:2379"]}}
SMALL = {"zones": [], "pools": [{"name": "main", "replicas": 1, "storage": {"size": "1Gi"}}]}


@dataclass
class Silent:
    """Accepts connections and never answers: for a client as a fleet whose packets are dropped."""

    address: str = ""
    accepted: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        async with self.changed:
            self.changed.notify_all()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def until(self, accepted: int) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.accepted >= accepted)


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[Silent]:
    made = Silent()
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    made.address = f"{host}:{port}"
    try:
        yield made
    finally:
        server.close()


class Admins(BrokerAdmins):
    def __init__(self, world: World, silent: Silent) -> None:
        self._world, self._silent = world, silent

    async def open(self, bootstrap: str) -> Admin:  # type: ignore[override]
        if bootstrap.startswith(HEALTHY):
            return await self._world.open(bootstrap)
        return await super().open(self._silent.address)


class Movers(FleetMovers):
    def __init__(self, world: World, silent: Silent) -> None:
        super().__init__(None)
        self._world, self._silent = world, silent

    async def level(self, bootstrap: str) -> FeatureLevel:
        if bootstrap.startswith(HEALTHY):
            return await self._world.replicas.level(bootstrap)
        return await super().level(self._silent.address)


def named(document: Manifest, name: str) -> Manifest:
    made = copy.deepcopy(document)
    made["metadata"]["name"] = name
    return made


async def test_a_healthy_fleet_waits_for_none_of_twenty_that_nobody_reaches(silent: Silent) -> None:
    world = World()
    small = cluster(**SMALL, **OUTSIDE)
    for name in (HEALTHY, *(f"lost-{number}" for number in range(UNREACHABLE))):
        world.put(named(small, name))
        world.put(topic(f"{name}-flights", clusterRef={"name": name}))
    operation = Operation(world)
    await operation.until_at_rest()
    movers, ours = Movers(world, silent), operation.ownership
    worker = Worker(
        world,
        ClusterReconciler(
            world, SETTINGS, world, world.etcd, movers, ownership=ours, now=world.now
        ),
        TopicReconciler(
            world,
            Admins(world, silent),
            SETTINGS,
            ownership=ours,
            monotonic=time.monotonic,
            now=world.now,
        ),
        RebalanceReconciler(world, SETTINGS, movers, ownership=ours, now=world.now),
        SETTINGS,
    )
    running = asyncio.ensure_future(worker.run())
    try:
        await silent.until(AT_ONCE_MAX)
        changed = topic(f"{HEALTHY}-flights", clusterRef={"name": HEALTHY}, partitions=12)
        generation = world.put(changed)["metadata"]["generation"]
        worker.topic_changed(NAMESPACE, HEALTHY, f"{HEALTHY}-flights")
        began = time.monotonic()

        def seen() -> bool:
            status = world.one("Topic", f"{HEALTHY}-flights")["status"]
            return bool(status["observedGeneration"] == generation)

        while not seen() and time.monotonic() - began < SOON_S:
            assert not running.done()
            await asyncio.sleep(0)
        assert seen()
        # All of them are asked, none waits for the end of another's pass.
        await silent.until(2 * UNREACHABLE)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def ask_admin(address: str, question: Callable[[Admin], Awaitable[object]]) -> None:
    await question(await BrokerAdmins().open(address))


async def members(address: str) -> None:
    now = datetime.now(UTC)
    authority = certificates.make_authority("test", now)
    client = certificates.issue(authority.certificate, authority.key, "client", [], now)
    shown = authority.certificate, client.certificate, client.key
    await EtcdClients(None).members(Access((f"https://{address}",), *shown))


QUESTIONS: dict[str, Callable[[str], Awaitable[object]]] = {
    "describe": lambda address: ask_admin(address, lambda admin: admin.describe(["flights"])),
    "partition_health": lambda address: ask_admin(address, lambda admin: admin.partition_health()),
    "perform": lambda address: ask_admin(
        address, lambda admin: admin.perform([DeleteTopic("flights", None)])
    ),
    "configure": lambda address: ask_admin(
        address, lambda admin: admin.configure(parse_cluster(World().put(cluster())))
    ),
    "level": lambda address: FleetMovers(None).level(address),
    "may stop": lambda address: AdminPorts().may_stop([address], [1]),
    "serving": lambda address: AdminPorts().serving(address),
    "members of etcd": members,
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
async def test_every_wait_for_a_fleet_leaves_the_place_to_others(
    silent: Silent, question: Callable[[str], Awaitable[object]]
) -> None:
    began = asyncio.Event()
    waiting = Waiting(began.set)

    async def work() -> None:
        with waiting.counted():
            await question(silent.address)

    asking = asyncio.ensure_future(work())
    async with asyncio.timeout(SOON_S):
        await began.wait()
        await silent.until(1)
    assert waiting.count == 1
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert waiting.count == 0


async def test_more_waits_than_there_may_be_connections_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_module, "WAITING_MAX", 1)
    waiting = Waiting(lambda: None)
    with waiting.one_more(), waiting.counted(), waiting_for_fleet():
        assert waiting.count == 1
