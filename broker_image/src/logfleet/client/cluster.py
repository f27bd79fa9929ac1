"""The client of a fleet: connections to its brokers, their metadata, retries.

All of this package uses `Client`. Making one costs nothing and needs no running loop; it connects
at its first use, and belongs to the loop of that use.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Self, TypeVar

from logfleet.client.bootstrap import Outage, parse_bootstrap
from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError, raise_for
from logfleet.client.metadata import NO_LEADER, Metadata, Node, Topic
from logfleet.client.racing import first_connection
from logfleet.client.transactions.version import FinalizedFeatures
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

# Kafka: retry.backoff.ms and retry.backoff.max.ms (KIP-580)
BACKOFF_MS_MIN = 100
BACKOFF_MS_MAX = 1_000
# The coordinator is still ending the last transaction: its markers take a few milliseconds, so a
# fixed pause would be the longest part of a short transaction (Kafka waits 20 ms each time)
ENDING_BACKOFF_MS = 2

T = TypeVar("T")


class CoordinatorKind(IntEnum):
    """Of what a broker is the coordinator (Kafka: FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    TRANSACTION = 1


class Client:
    """bootstrap: "host:port,..."; they are only for finding brokers.

    Use as `async with`, or call `close`.

    request_timeout_ms: for one response (longer if a request sets its own wait). timeout_ms: for a
    call with all its retries (Kafka: default.api.timeout.ms). on_outage: see `Outage`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "logfleet",
        request_timeout_ms: int = 30_000,
        timeout_ms: int = 60_000,
        on_outage: Callable[[str], None] | None = None,
    ) -> None:
        self.addresses = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.timeout_ms = timeout_ms
        self.metadata = Metadata()
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Lock] = {}
        self.finalized = FinalizedFeatures()
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._unreachable: dict[int, Node] = {}  # broker id -> the address that failed
        self._outage = Outage(bootstrap, on_outage)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client may be used again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- connections

    async def any(self) -> Connection:
        """A connection to some broker, by the bootstrap addresses.

        Raises ConnectionLost if none responds, as `Outage` describes.
        """
        return await self._connected((-1, ""), self._bootstrap)

    async def broker(self, broker_id: int, purpose: str = "") -> Connection:
        """The connection to one broker; each `purpose` has its own (see connection.py).

        The metadata is fetched again if it lacks the broker, or if the broker was not reachable at
        its address: it may come back at another one. Raises ConnectionLost, also if there is no
        such broker.
        """

        async def connect() -> Connection:
            node = self.metadata.nodes.get(broker_id)
            if node is None or node == self._unreachable.get(broker_id):
                await self.fetch_topics([])
                node = self.metadata.nodes.get(broker_id)
            if node is None:
                raise ConnectionLost(f"broker {broker_id} is not in the metadata")
            try:
                connection = await Connection.connect(node.host, node.port, self.client_id)
            except ConnectionLost:
                self._unreachable[broker_id] = node
                raise
            self._unreachable.pop(broker_id, None)
            return connection

        return await self._connected((broker_id, purpose), connect)

    async def _connected(
        self, key: tuple[int, str], connect: Callable[[], Awaitable[Connection]]
    ) -> Connection:
        connection = self._connections.get(key)
        if connection is None or connection.lost is not None:
            async with self._connecting.setdefault(key, asyncio.Lock()):
                connection = self._connections.get(key)
                if connection is None or connection.lost is not None:
                    connection = self._connections[key] = await connect()
                    self.finalized.learn(connection.features_epoch, connection.features)
        await connection.writable()
        return connection

    async def _bootstrap(self) -> Connection:
        """Connect to a connected broker's address if there is one, else to the others.

        Kafka: NetworkClient.leastLoadedNode.
        """
        live = [(each.host, each.port) for each in self._connections.values() if not each.lost]
        nodes = [(node.host, node.port) for node in self.metadata.nodes.values()]
        addresses = dict.fromkeys([*live, *self.addresses, *nodes])
        attempts = [partial(Connection.connect, *each, self.client_id) for each in addresses]
        now_s = asyncio.get_running_loop().time()
        try:
            connection = await first_connection(attempts)
        except ConnectionLost as error:
            self._outage.failed(error, now_s)
            raise
        self._outage.is_over()
        return connection

    # --- metadata

    async def topic(self, name: str, *, auto_create: bool = False) -> Topic:
        """The topic from metadata at most five minutes old; see `fetch_topics` for errors."""
        cached = self.metadata.topic(name, asyncio.get_running_loop().time())
        if cached is not None:
            return cached
        return (await self.fetch_topics([name], auto_create=auto_create))[0]

    async def fetch_topics(
        self, names: Sequence[str] | None, *, auto_create: bool = False
    ) -> list[Topic]:
        """Fetch the metadata of these topics; None: all.

        Raises KafkaError for the first one with an error.
        """
        wanted = None
        if names is not None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        connection = await self.any()
        response = await connection.request(
            request, MetadataResponse, timeout_ms=self.request_timeout_ms
        )
        raise_for(response.error_code, subject="metadata")
        topics = self.metadata.update(response, asyncio.get_running_loop().time())
        for row in response.topics:
            if names is not None and row.error_code:
                self.metadata.forget([row.name or ""])
                raise KafkaError(row.error_code, subject=f"topic {row.name}")
        return topics

    async def leader_of(self, topic_name: str, index: int) -> int:
        """Broker id of a partition's leader. Raises KafkaError if it has none or does not exist."""
        subject = f"{topic_name}-{index}"
        partition = (await self.topic(topic_name)).partition(index)
        if partition is None:
            self.metadata.doubt([topic_name])
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject=subject)
        if partition.leader == NO_LEADER:
            self.metadata.doubt([topic_name])
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, subject=subject)
        return partition.leader

    async def coordinator(
        self, name: str, purpose: str = "", *, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> Connection:
        """The connection to the coordinator of a group, or of a transactional id.

        It is cached until `forget_coordinator`.
        """
        broker_id = await self.coordinator_id(name, kind=kind)
        try:
            return await self.broker(broker_id, purpose)
        except ConnectionLost:
            self.forget_coordinator(name, kind=kind)
            raise

    async def coordinator_id(
        self, name: str, *, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> int:
        """The broker that `coordinator` connects to."""
        broker_id = self._coordinators.get((kind, name))
        return await self._find_coordinator(name, kind) if broker_id is None else broker_id

    def forget_coordinator(
        self, name: str, *, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> None:
        """Look up the coordinator again next time: it has moved, or its broker is gone."""
        self._coordinators.pop((kind, name), None)

    async def _find_coordinator(self, name: str, kind: CoordinatorKind) -> int:
        connection = await self.any()
        response = await connection.request(
            FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]),
            FindCoordinatorResponse,
            timeout_ms=self.request_timeout_ms,
        )
        found = response.coordinators[0]
        raise_for(found.error_code, found.error_message, subject=f"coordinator of {name}")
        self.metadata.learn(Node(found.node_id, found.host, found.port))
        self._coordinators[kind, name] = found.node_id
        return found.node_id

    # --- retries

    async def retrying(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> T:
        """Call until it succeeds, fails for good, or the time is up; then raise the last error.

        topics: their metadata is fetched again after an error that means it is outdated.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_ms if timeout_ms is None else timeout_ms) / 1000
        attempt = 0
        while True:
            try:
                return await call()
            except ClientError as error:
                pause = backoff_seconds(attempt, error)
                if not error.retriable or loop.time() + pause > deadline:
                    raise
                if error.stale_metadata:
                    self.metadata.doubt(topics)
            attempt += 1
            await asyncio.sleep(pause)


def backoff_seconds(attempt: int, error: ClientError | None = None) -> float:
    """Seconds before the next attempt, of which the first is 0.

    They double up to a second, give or take a fifth. error: why the attempt failed; the pause is
    short if only the last transaction is in the way.
    """
    is_ending = isinstance(error, KafkaError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    first_ms = ENDING_BACKOFF_MS if is_ending else BACKOFF_MS_MIN
    pause_ms = min(first_ms << min(attempt, 10), BACKOFF_MS_MAX)
    return pause_ms * random.uniform(0.8, 1.2) / 1000
