import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest
import pytest_asyncio
from logfleet.config.broker import BrokerConfig, broker_config
from logfleet.controller.running.access import ControllerAccess
from logfleet.controller.running.loop import ControllerLoop
from logfleet.io import clock
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue, Endpoint
from logfleet.metadata.kinds.cluster import ControllerValue
from logfleet.metadata.store import MetadataStore, Operation, Txn
from logfleet.net import listener as sockets
from logfleet.net.peer import Peer
from logfleet.net.sockets import bind_tcp
from logfleet.node.cluster.producer_id_pool import ProducerIdPool
from logfleet.node.dispatch import Dispatcher
from logfleet.node.handlers import api_versions, metadata, producer_ids
from logfleet.node.handlers.admin import routes as admin
from logfleet.node.handlers.admin.topics import create_one
from logfleet.node.topic_creator import TopicCreator
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.quotas.rates import Windows
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions
from logfleet.wire.apis import api_of
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request

from broker_image.tests.unit.controller.running.controller_rig import nobody_answers

PATIENCE_S = 20
CLUSTER_ID = "AAECAwQFBgcICQoLDA0ODw"
HANDLERS = {
    **api_versions.HANDLERS,
    **admin.HANDLERS,
    **metadata.HANDLERS,
    **producer_ids.HANDLERS,
}
R = TypeVar("R", bound=msgspec.Struct)


def joined(parts: object) -> bytes:
    return b"".join(cast("list[bytes]", parts))


class Node:
    """A broker without logs: metadata, controller and a socket for requests of any version."""

    def __init__(self, store: MetadataStore, node_id: int, given: dict[str, str]) -> None:
        self.node_id = node_id
        self.cluster_id = CLUSTER_ID
        self.store = store
        self.config: BrokerConfig = broker_config({"node.id": str(node_id), **given})
        self.follower = MetadataLoader(store)
        value = ControllerValue(node_id, f"incarnation-{node_id}")
        self.decisions = Decisions(node_id, clock.now_ms)
        self.controller = ControllerLoop(
            store,
            self.follower,
            value,
            self.config.static,
            self.decisions,
            query_log_ends=nobody_answers,
        )
        self.quotas = ClientQuotas(Windows(), Windows())
        self.applying = asyncio.Event()
        self.applied = asyncio.Event()
        self.applied.set()
        self.controller_access = ControllerAccess(
            self.config,
            self.follower,
            self.controller,
            self.quotas.mutation,
            until_applied=self._until_applied,
        )
        self.topic_creator = TopicCreator(self.controller_access, create_one)
        self.producer_ids = ProducerIdPool(store)
        self.failsafe = SimpleNamespace(silent_s=0.0)
        self.metadata = self.follower
        self.control = SimpleNamespace(
            access=self.controller_access,
            topic_creator=self.topic_creator,
            producer_ids=self.producer_ids,
        )
        self.dispatcher = Dispatcher(self, HANDLERS)
        self.requests = self.dispatcher.requests
        self.port = 0
        self._stack = AsyncExitStack()

    @property
    def image(self) -> ClusterImage:
        return self.follower.image

    async def _until_applied(self, revision: int, _: int) -> None:
        assert revision == self.image.revision
        self.applying.set()
        await self.applied.wait()

    async def start(self, *, stands: bool = True) -> None:
        pool = ThreadPoolExecutor(1)
        self._stack.callback(pool.shutdown)
        self.listener = sockets.Listener("PLAINTEXT", self.dispatcher, disk=pool)
        self.port = self.listener.take("127.0.0.1", bind_tcp("127.0.0.1", 0))
        await self.listener.serve()
        self._stack.push_async_callback(self.listener.stop, 0)
        self._spawn(self.follower.run())
        if stands:
            self._spawn(self.controller.run())
        self._stack.callback(self.controller_access.close)
        self._stack.push_async_callback(self.topic_creator.close)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def register(self, rack: str | None = None, *others: Endpoint) -> None:
        """Register, and wait until the controller has made this broker active."""
        listeners = (Endpoint("PLAINTEXT", "127.0.0.1", self.port), *others)
        value = BrokerValue(f"incarnation-{self.node_id}", listeners, rack)
        await self.write(BROKER.put(self.node_id, value))
        await self.until(lambda image: image.brokers[self.node_id].is_active)

    async def unregister(self) -> None:
        await self.write(BROKER.delete(self.node_id))

    async def write(self, *operations: Operation) -> None:
        result = await self.store.txn(Txn(success=operations))
        await self.until(lambda image: image.revision >= result.revision)

    async def until(self, holds: Callable[[ClusterImage], Any]) -> ClusterImage:
        async with asyncio.timeout(PATIENCE_S):
            return await self.follower.until(lambda image: bool(holds(image)))

    async def ask(
        self, request: msgspec.Struct, version: int | None = None, listener: str = "PLAINTEXT"
    ) -> Any:
        """The answer, both encoded and decoded again in the version (None: the newest)."""
        api = api_of(type(request))
        if version is None:
            version = api.max_version
        frame = joined(encode_request(request, version, 7, "test"))
        answer: Any = self.dispatcher(
            Peer(listener, "127.0.0.1", 1), memoryview(frame)[SIZE_BYTES:]
        )
        if not isinstance(answer, bytes | list):
            assert answer is not None
            async with asyncio.timeout(PATIENCE_S):
                answer = await answer
        whole = answer if isinstance(answer, bytes) else joined(answer)
        correlation_id, response = decode_response(api, version, whole[SIZE_BYTES:])
        assert correlation_id == 7
        return response

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)

        async def cancel() -> None:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None

        self._stack.push_async_callback(cancel)


@pytest_asyncio.fixture
async def store(tmp_path):
    store = await SqliteStore.open(tmp_path / "metadata")
    yield store
    await store.close()


@pytest_asyncio.fixture
async def start(store):
    """Starts brokers of one cluster; the first stands for controller and wins."""
    nodes = []

    async def start_node(node_id: int = 1, *, stands: bool = True, **given: str) -> Node:
        node = Node(store, node_id, {key.replace("_", "."): value for key, value in given.items()})
        nodes.append(node)
        await node.start(stands=stands)
        return node

    yield start_node
    for node in reversed(nodes):
        await node.stop()


@pytest_asyncio.fixture
async def node(start):
    """One registered broker that is its own controller."""
    node = await start()
    await node.register("a")
    return node


@pytest.fixture
def versions() -> Callable[[type], range]:
    """Every version of an API, by its request."""

    def of(request: type) -> range:
        api = api_of(request)
        return range(api.served_min, api.max_version + 1)

    return of
