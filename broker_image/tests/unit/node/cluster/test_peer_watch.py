"""Brokers on one store, each with a real listening socket that the others connect to."""

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from functools import partial

import pytest
from logfleet.metadata.kinds.brokers import (
    BROKER,
    FENCE,
    FENCED,
    SUSPECT,
    BrokerValue,
    Endpoint,
    FenceValue,
    SuspectValue,
)
from logfleet.metadata.store import Put
from logfleet.node.cluster.peer_watch import PeerWatch
from logfleet.telemetry.decisions import Kind
from logfleet.types import BrokerEpoch

from broker_image.tests.unit.controller.running.controller_rig import (
    Node,
    recorded,
    running,
    soon,
    until,
)

pytestmark = pytest.mark.asyncio


class Peer:
    """A broker: its registration on a lease of its own, its socket, its watch."""

    def __init__(self, store, broker_id: int) -> None:
        self.host = "127.0.0.1"
        self.store = store
        self.id = broker_id
        self.connections: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        await self.register()

    async def register(self) -> None:
        self.lease = await self.store.grant_lease(3)
        address = Endpoint("PLAINTEXT", self.host, self.port)
        value = BROKER.encode(BrokerValue(f"incarnation-{self.id}", (address,)))
        await self.store.write(Put(BROKER.key(self.id), value, self.lease.id))

    async def _connected(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.server.is_serving():
            self.connections.append(writer)
        else:  # accepted before it died
            writer.close()

    def close_connections(self) -> None:
        while self.connections:
            self.connections.pop().close()

    def die(self) -> None:
        self.server.close()
        self.close_connections()


@asynccontextmanager
async def fleet(store, *ids: int):
    async with running(store, ids[0]) as first, asyncio.TaskGroup() as tasks:
        peers, watches = {}, []
        for broker_id in ids:
            peer = peers[broker_id] = Peer(store, broker_id)
            await peer.start()
            node = first if broker_id == ids[0] else Node(store, broker_id)
            if node is not first:
                watches.append(tasks.create_task(node.follower.run()))
            watch = PeerWatch(
                store,
                node.follower,
                node.loop,
                node_id=broker_id,
                listener_name="PLAINTEXT",
                lease=partial(getattr, peer, "lease"),
                decisions=node.decisions,
            )
            watches.append(tasks.create_task(watch.run()))
        image = first.follower
        await soon(
            image.until(lambda seen: sum(b.is_active for b in seen.brokers.values()) == len(ids))
        )
        await until(lambda: all(len(peer.connections) == len(ids) - 1 for peer in peers.values()))
        yield first, peers
        for task in watches:
            task.cancel()
        for peer in peers.values():
            peer.die()


async def test_a_process_that_is_gone_is_fenced_long_before_its_lease_ends(store):
    async with fleet(store, 1, 2, 3) as (first, peers):
        began = asyncio.get_running_loop().time()
        peers[3].die()
        await soon(first.follower.until(lambda image: image.fences[3].state == FENCED))
        assert asyncio.get_running_loop().time() - began < 2
        assert first.follower.image.brokers.keys() == {1, 2, 3}, "its lease stands"
        (decision,) = recorded(first.decisions, Kind.SUSPECTED)
        assert (decision.broker, decision.cause.partition(":")[0]) == (3, "it refuses connections")
        (decision,) = recorded(first.decisions, Kind.FENCED)
        assert decision.cause.startswith("it refuses connections, as brokers 1, 2 report")


async def test_one_that_only_closed_its_connections_is_connected_to_again_and_not_reported(store):
    async with fleet(store, 1, 2, 3) as (first, peers):
        peers[3].close_connections()
        await until(lambda: len(peers[3].connections) == 2)
        assert first.follower.image.suspects == {}
        assert first.follower.image.brokers[3].is_active


async def test_the_key_of_a_controller_that_is_gone_is_taken_away(store):
    async with fleet(store, 1, 2, 3) as (first, peers):
        epoch = first.follower.image.controller.epoch
        peers[1].die()
        await soon(
            first.follower.until(
                lambda image: image.controller is None or image.controller.epoch != epoch
            )
        )


async def test_a_report_is_withdrawn_when_the_peer_can_be_reached_again(store):
    async with fleet(store, 1, 2, 3, 4) as (first, peers):
        peer = peers[3]
        port = peer.port
        await store.write(FENCE.put(3, FenceValue(BrokerEpoch(0), FENCED)))
        peer.die()
        await soon(first.follower.until(lambda image: len(image.suspects) == 3))
        peer.server = await asyncio.start_server(peer._connected, "127.0.0.1", port)
        await soon(first.follower.until(lambda image: not image.suspects))


@pytest.mark.parametrize(
    "error",
    [socket.gaierror(socket.EAI_AGAIN, "no name server"), OSError(errno.EMFILE, "no descriptor")],
)
async def test_who_cannot_connect_for_a_reason_of_its_own_reports_nobody(store, monkeypatch, error):
    """Not even the controller, which all lose sight of while a name server is away."""
    async with fleet(store, 1, 2, 3) as (first, peers):
        attempts = 0

        async def fail(*_: object) -> None:
            nonlocal attempts
            attempts += 1
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "open_connection", fail)
            for peer in peers.values():
                peer.close_connections()
            await until(lambda: attempts > 12)
        await until(lambda: all(len(peer.connections) == 2 for peer in peers.values()))
        assert recorded(first.decisions, Kind.SUSPECTED) == []
        assert first.follower.image.suspects == {}
        assert all(broker.is_active for broker in first.follower.image.brokers.values())


async def test_an_address_that_is_none_stops_nobody_from_watching_the_others(store):
    """The lookup of `a..b` fails; that once ended the watch of every broker, and the brokers."""
    async with fleet(store, 1, 2, 3) as (first, peers):
        misnamed = Peer(store, 4)
        misnamed.host = "a..b"
        await misnamed.start()
        await soon(first.follower.until(lambda image: 4 in image.brokers))
        peers[3].die()
        await soon(first.follower.until(lambda image: image.fences[3].state == FENCED))
        assert 4 not in {suspect for suspect, _ in first.follower.image.suspects}
        misnamed.die()


async def test_a_broker_that_the_controller_still_reaches_is_not_fenced(store):
    """Two brokers that cannot reach a third report it; the controller's probe succeeds."""
    async with fleet(store, 1, 2, 3, 4) as (first, peers):
        accused, image = peers[3], first.follower
        reached = len(accused.connections)
        epoch = image.image.brokers[3].epoch
        for reporter in (2, 4):
            report = SUSPECT.encode(SuspectValue(epoch))
            await store.write(Put(SUSPECT.key((3, reporter)), report, peers[reporter].lease.id))
        await soon(image.until(lambda seen: len(seen.suspects) == 2))
        await until(
            lambda: len(accused.connections) > reached + 1 or image.image.brokers[3].is_fenced
        )
        assert image.image.brokers[3].is_active
        assert recorded(first.decisions, Kind.FENCED) == []
