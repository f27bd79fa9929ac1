"""Clusters whose nodes have addresses of IPv6 only."""

import aiohttp
import pytest
from logfleet.config.broker import broker_config
from logfleet.resources.cluster import ADMIN_PORT
from logfleet_operator import http_server

from .operation import Operation, cluster, properties_of
from .world import World

pytestmark = pytest.mark.asyncio


@pytest.fixture
def world() -> World:
    made = World()
    made.host_ip = "fd00::1"
    made.put(cluster())
    return made


async def test_addresses_in_status_stand_in_brackets(world: World) -> None:
    """As clients take them (librdkafka: bootstrap.servers)."""
    await Operation(world).until_at_rest()
    _, outside = world.one("Cluster", "fleet")["status"]["listeners"]
    ports = [
        world.one("Service", f"fleet-external-{broker}")["spec"]["ports"][0]["nodePort"]
        for broker in (0, 1000, 2000)
    ]
    assert outside["bootstrap"].split(",") == [f"[fd00::1]:{port}" for port in ports]


async def test_brokers_listen_for_probes_on_all_addresses(world: World) -> None:
    await Operation(world).until_at_rest()
    text = properties_of(world)
    properties = dict(line.split("=", 1) for line in text.splitlines())
    # What the start script adds, where HOST_IP is an address without brackets.
    inside = properties["inter.broker.listener.name"]
    advertised = f"{inside}://pod:9092,EXTERNAL://fd00::1:30000"
    config = broker_config({**properties, "node.id": "0", "advertised.listeners": advertised})
    admin = config.logfleet_admin_listener
    assert admin is not None
    assert (admin.host, admin.port) == ("", ADMIN_PORT)
    assert ("fd00::1", 30000) in [(each.host, each.port) for each in config.advertised_listeners]


async def test_the_operator_listens_for_probes_on_all_addresses(world: World) -> None:
    worker = Operation(world).worker
    runner = await http_server.serve(
        worker,
        watching=lambda: True,
        alive=lambda: True,
        leadership=None,
        left_alone=str,
        port=0,
    )
    try:
        sites = [(address[0], address[1]) for address in runner.addresses]
        assert {host for host, _ in sites} == {"0.0.0.0", "::"}  # compared, not bound
        async with aiohttp.ClientSession() as session:
            for host, port in sites:
                loopback = "[::1]" if host == "::" else "127.0.0.1"
                async with session.get(f"http://{loopback}:{port}/metrics") as answer:
                    assert answer.status == 200
    finally:
        await runner.cleanup()
