import asyncio
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog
from logfleet.config.connection_limits import connection_limits
from logfleet.config.topic import BrokerLayers
from logfleet.net.connection import IDLE, Encoded
from logfleet.net.connection_quotas import ConnectionQuotas
from logfleet.net.listener import Listener, close_least_recently_used, unlimited
from logfleet.net.peer import Peer
from logfleet.net.sockets import bind_tcp

from broker_image.tests.unit.net.listening import serving, stop_ticking
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(peer: Peer, frame: memoryview) -> Encoded:
    del peer
    return framed(bytes(frame))


class Parking:
    """Parks every request until released; a leaving peer releases it, too."""

    def __init__(self) -> None:
        self.parked: list[asyncio.Future[Encoded]] = []
        self.arrived = asyncio.Event()

    def __call__(self, peer: Peer, frame: memoryview) -> asyncio.Future[Encoded]:
        del frame
        answer: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self.parked.append(answer)
        peer.on_leave = lambda: None if answer.done() else answer.set_result(framed(b"early"))
        self.arrived.set()
        return answer


async def test_stopping_answers_what_is_parked_and_closes(until: Until) -> None:
    service = Parking()
    async with serving(service) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"wait"))
        await service.arrived.wait()
        await until(lambda: len(listener.connections) == 2)
        await listener.stop(grace_s=30)
        assert await reader.read() == framed(b"early")
        assert await idle_reader.read() == b""
        writer.close()
        idle_writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("throttled", ["before", "by the answer"])
async def test_stopping_does_not_wait_for_throttled_peers(throttled: str) -> None:
    """Kafka: SocketServer closes the channels of a processor that ends, muted or not."""
    service = Parking()
    async with serving(service) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"wait") + framed(b"never served"))
        await service.arrived.wait()
        (connection,) = listener.connections
        if throttled == "before":
            connection.throttle(3_600_000)
        else:
            end = connection.peer.on_leave

            def leave() -> None:
                connection.throttle(3_600_000)
                assert end is not None
                end()

            connection.peer.on_leave = leave
        with structlog.testing.capture_logs() as logs:
            await listener.stop(grace_s=30)
        assert [row["event"] for row in logs] == [], "nothing was cut"
        assert await reader.read() == framed(b"early")
        assert len(service.parked) == 1
        writer.close()


async def test_stopping_cuts_what_does_not_end_in_time() -> None:
    service = Parking()
    async with serving(service) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"wait"))
        await service.arrived.wait()
        for connection in listener.connections:
            connection.peer.on_leave = None
        await listener.stop(grace_s=0.01)
        assert listener.connections == set()
        writer.close()
        assert not service.parked[0].done() or service.parked[0].cancelled()
        del reader


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(until: Until) -> None:
    async with serving(echo, idle_s_max=600) as (listener, port):
        stop_ticking(listener)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(listener.connections) == 2)
        for _ in range(2):
            listener.now += 400
            await listener._close_idle()
            writer.write(framed(b"ping"))
            assert await reader.readexactly(8) == framed(b"ping")
        assert await idle_reader.read() == b""
        assert listener.closed_by[IDLE] == 1
        idle_writer.close()
        writer.close()
        await listener.stop(grace_s=5)


@pytest.mark.parametrize("sooner", [False, True])
async def test_below_0_no_connection_is_idle_and_at_0_the_loop_still_rests(*, sooner: bool) -> None:
    """Kafka's Selector has no IdleExpiryManager for a negative connections.max.idle.ms."""
    async with serving(echo, idle_s_max=0 if sooner else -0.001) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if sooner:
            assert await reader.read() == b""
        # the time itself is what is measured: a loop that never rests would use all of it
        began_s, used_s = time.monotonic(), time.process_time()
        while time.monotonic() - began_s < 0.3:
            if not sooner:
                writer.write(framed(b"ping"))
                assert await reader.readexactly(8) == framed(b"ping")
            await asyncio.sleep(0.05)
        assert time.process_time() - used_s < 0.15
        writer.close()
        await listener.stop(grace_s=5)


async def test_a_peer_that_resets_before_it_is_served_is_not_counted(until: Until) -> None:
    limits = connection_limits(BrokerLayers({"max.connections.per.ip": "21"}), ["L"])
    quotas = ConnectionQuotas(limits, lambda: 0)
    came_from: set[str] = set()

    def throttle(host: str) -> int:
        came_from.add(host)
        return 0

    async with serving(echo, quotas=quotas, throttle=throttle) as (listener, port):
        for _ in range(2):
            for _ in range(20):  # all before the loop comes to take one of them
                hasty = socket.create_connection(("127.0.0.1", port))
                hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                hasty.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"ping"))
            assert await reader.read(8) == framed(b"ping")
            writer.close()
            await until(lambda: quotas.total == 0)
        assert came_from == {"127.0.0.1"}
        await listener.stop(grace_s=5)


async def test_a_closed_connection_whose_peer_takes_nothing_is_cut(until: Until) -> None:
    def flood(peer: Peer, frame: memoryview) -> Encoded:
        del peer, frame
        return framed(bytes(32 * 1024 * 1024))

    async with serving(flood, idle_s_max=0.2) as (listener, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(framed(b"x"))
            await until(lambda: listener.connections)
            await listener._until_empty()
        await listener.stop(grace_s=5)


async def test_a_port_in_use_is_an_error_and_a_free_one_is_returned() -> None:
    with ThreadPoolExecutor(1) as disk:
        first = Listener("L", echo, disk=disk)
        port = first.take("127.0.0.1", bind_tcp("127.0.0.1", 0))
        await first.serve()
        assert port > 0
        with pytest.raises(OSError, match="in use"):
            bind_tcp("127.0.0.1", port)
        await first.stop(grace_s=1)
        assert first.accepted == 0


async def test_a_loop_of_few_steps_accepts_all_connections_that_wait() -> None:
    count = 48
    async with serving(echo) as (listener, port):
        peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        steps = 0
        while listener.accepted < count and steps < 10 * count:
            steps += 1
            await asyncio.sleep(0)
        # one accepted after the other took three to four steps each
        assert steps < count
        for peer in peers:
            peer.close()
        await listener.stop(grace_s=5)


def limited(**values: int) -> ConnectionQuotas:
    static = {key.replace("_", "."): str(value) for key, value in values.items()}
    quotas = unlimited("L")
    quotas.update(connection_limits(BrokerLayers(static), ["L"]))
    return quotas


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the connection is served, not closed."""
    try:
        writer.write(framed(b"ping"))
        return await reader.read(8) == framed(b"ping")
    except (ConnectionError, RuntimeError):  # what uvloop raises for a closed transport
        return False


async def test_a_connection_too_many_of_one_address_is_closed_at_once() -> None:
    async with serving(echo, quotas=limited(max_connections_per_ip=1)) as (listener, port):
        first, second = await connect(port), await connect(port)
        assert await answers(*first)
        assert not await answers(*second)
        assert (listener.accepted, listener.refused) == (1, 1)
        first[1].close()
        await listener._until_empty()
        third = await connect(port)
        assert await answers(*third)
        for _, writer in (second, third):
            writer.close()
        await listener.stop(grace_s=5)
        assert listener.quotas.total == 0


async def test_a_connection_beyond_the_limit_waits_until_another_ends() -> None:
    async with serving(echo, quotas=limited(max_connections=1)) as (listener, port):
        first, second = await connect(port), await connect(port)
        assert await answers(*first)
        waiting = asyncio.ensure_future(answers(*second))
        assert await answers(*first)
        assert not waiting.done()
        first[1].close()
        assert await waiting
        assert listener.waited_s > 0
        second[1].close()
        await listener.stop(grace_s=5)


async def test_a_stop_keeps_no_client_waiting(until: Until) -> None:
    async with serving(echo, quotas=limited(max_connections=1)) as (listener, port):
        first = await connect(port)
        await until(lambda: listener.connections)
        second = await connect(port)
        await listener.stop(grace_s=5)
        for reader, writer in (first, second):
            assert not await answers(reader, writer)
            writer.close()
        assert listener.quotas.total == 0


async def test_room_is_made_by_those_that_were_idle_for_longest(until: Until) -> None:
    async with serving(echo) as (listener, port):
        pairs = [await connect(port) for _ in range(3)]
        await until(lambda: len(listener.connections) == 3)
        for age, connection in enumerate(
            sorted(listener.connections, key=lambda each: each.peer.port)
        ):
            connection.last_active = listener.now - age
        close_least_recently_used([listener], 1)
        close_least_recently_used([listener], 2)  # one of them is ending already
        await until(lambda: len(listener.connections) == 1)
        assert listener.closed_by["evicted"] == 2
        pairs.sort(key=lambda pair: pair[1].get_extra_info("sockname")[1])
        assert [await answers(*pair) for pair in pairs] == [True, False, False]
        for _, writer in pairs:
            writer.close()
        await listener.stop(grace_s=5)


async def test_all_addresses_are_one_port_in_every_family() -> None:
    with ThreadPoolExecutor(1) as disk:
        listener = Listener("L", echo, disk=disk, backlog=5)
        port = listener.take("", bind_tcp("", 0, 65536))
        await listener.serve()
        reader, writer = await connect(port)
        assert await answers(reader, writer)
        assert {each.getsockname()[1] for each in listener._sockets} == {port}
        writer.close()
        await listener.stop(grace_s=5)


async def test_connections_without_descriptors_are_closed_at_once_and_logged_rarely() -> None:
    limits = connection_limits(BrokerLayers(), ["L"])
    quotas = ConnectionQuotas(limits, lambda: 0, possible_max=1)
    with structlog.testing.capture_logs() as logs:
        async with serving(echo, quotas=quotas) as (listener, port):
            first = await connect(port)
            assert await answers(*first)
            for _ in range(5):
                refused = await connect(port)
                assert not await answers(*refused)
                refused[1].close()
            assert (listener.accepted, listener.refused, quotas.total) == (1, 5, 1)
            assert [each["event"] for each in logs] == ["connections_refused"]
            assert await answers(*first)
            first[1].close()
            await listener._until_empty()
            again = await connect(port)
            assert await answers(*again)
            again[1].close()
            await listener.stop(grace_s=5)
