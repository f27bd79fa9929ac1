"""Asks the other brokers whether the store answers them, while it does not answer this one.

They answer by DescribeCluster (KIP-700, KIP-1073): a broker whose own keepalives get no answer
names no controller, and itself as fenced. No Kafka API asks just this; Patroni's members answer the
same question by their "failsafe" endpoint.

An answer counts only if it still lists the asking broker as unfenced. A broker that was cut off
first, and replaced, before the store went away for all would otherwise take the silence of now for
a proof that no broker was elected before.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.io.clock import monotonic_ms
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.replication.failsafe import peers_of
from logfleet.wire.messages import DescribeClusterRequest, DescribeClusterResponse

log = structlog.get_logger(__name__)

NO_CONTROLLER: Final = NO_LEADER
ASK_S: Final = 0.5
ANSWER_MS_MAX: Final = 1_000
Report = Callable[[int, int | None], None]
"""Called with a peer, and the time (monotonic) at which it was asked; None: it does not confirm."""


def confirms(answer: DescribeClusterResponse, peer: int, asker: int) -> bool:
    """Whether `peer` reports that the store is silent, and does not list `asker` as fenced.

    So the registration of `asker` stood when the store last answered.
    """
    fenced = {broker.broker_id: broker.is_fenced for broker in answer.brokers}
    is_silent = answer.controller_id == NO_CONTROLLER and fenced.get(peer, False)
    return is_silent and not fenced.get(asker, True)


class SilentPeers:
    """While started, asks other brokers every ASK_S.

    image: the newest; it does not change while the store is silent.
    """

    def __init__(self, node_id: int, listener_name: str, image: Callable[[], ClusterImage]) -> None:
        self._node_id = node_id
        self._listener_name = listener_name
        self._image = image
        self._asking: dict[int, asyncio.Task[None]] = {}

    def active(self) -> frozenset[int]:
        """The brokers that can be asked."""
        return peers_of(self._image(), self._node_id)

    def start(self, peers: frozenset[int], report: Report) -> None:
        """Ask these brokers, too, until `stop`, and report each answer."""
        for broker_id in peers - self._asking.keys():
            self._asking[broker_id] = asyncio.ensure_future(self._ask(broker_id, report))

    async def stop(self) -> None:
        """Stop asking."""
        if not self._asking:
            return
        tasks = list(self._asking.values())
        self._asking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, broker_id: int, report: Report) -> None:
        """Ask one peer until cancelled, over one connection for as long as it lasts."""
        while True:
            with contextlib.suppress(ClientError):
                await self._ask_by_one_connection(broker_id, report)
            await asyncio.sleep(ASK_S)

    async def _ask_by_one_connection(self, broker_id: int, report: Report) -> None:
        """Ask every ASK_S. Raises ClientError once the connection ends, or cannot be made."""
        broker = self._image().brokers.get(broker_id)
        address = None if broker is None else broker.listener(self._listener_name)
        if address is None:
            return
        name = f"broker-{self._node_id}-failsafe"
        connection = await Connection.connect(address.host, address.port, name)
        with contextlib.closing(connection):
            while True:
                asked_ms = monotonic_ms()
                answer = await connection.request(
                    DescribeClusterRequest(include_fenced_brokers=True),
                    DescribeClusterResponse,
                    timeout_ms=ANSWER_MS_MAX,
                )
                is_silent = confirms(answer, broker_id, self._node_id)
                report(broker_id, asked_ms if is_silent else None)
                await asyncio.sleep(ASK_S)
