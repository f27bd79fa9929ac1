"""How outside clients reach each broker: what is advertised, which nodes take a connection."""

from typing import Any

import pytest
from logfleet_operator import names

from .operation import at_rest, cluster
from .world import Manifest, World

pytestmark = pytest.mark.asyncio

INTERNAL = {"name": "internal", "port": 9092, "type": "internal"}
BY_NODE = {"name": "external", "port": 9094, "type": "nodeport"}
BY_ONE_NAME = {**BY_NODE, "advertisedHost": "fleet.example.com"}


def policies(world: World) -> set[str]:
    return {service["spec"]["externalTrafficPolicy"] for service in outside(world)}


def outside(world: World) -> list[Manifest]:
    return [
        live
        for (kind, _, _), live in world.objects.items()
        if kind == "Service" and live["spec"].get("type") == "NodePort"
    ]


def bootstrap(world: World) -> list[str]:
    _, listener = world.one("Cluster", "fleet")["status"]["listeners"]
    return str(listener["bootstrap"]).split(",")


def script(world: World) -> str:
    pod: Any = world.one("StatefulSet", "fleet-main-a")["spec"]["template"]["spec"]
    return str(pod["containers"][0]["command"][-1])


async def test_a_node_that_is_advertised_serves_its_own_broker_without_a_second_hop() -> None:
    world, _ = await at_rest(listeners=[INTERNAL, BY_NODE])
    assert policies(world) == {"Local"}
    ports = [service["spec"]["ports"][0]["nodePort"] for service in outside(world)]
    assert bootstrap(world) == [f"{world.host_ip}:{port}" for port in ports]
    assert "EXTERNAL://$HOST_IP:$external_port" in script(world)


async def test_any_node_behind_the_one_name_serves_every_broker() -> None:
    world, _ = await at_rest(listeners=[INTERNAL, BY_ONE_NAME])
    assert policies(world) == {"Cluster"}
    ports = [service["spec"]["ports"][0]["nodePort"] for service in outside(world)]
    assert len(set(ports)) == 3
    assert bootstrap(world) == [f"fleet.example.com:{port}" for port in ports]
    assert "EXTERNAL://fleet.example.com:$external_port" in script(world)


async def test_the_policy_follows_the_name_and_ports_stay() -> None:
    world, operation = await at_rest(listeners=[INTERNAL, BY_NODE])
    ports = [service["spec"]["ports"][0]["nodePort"] for service in outside(world)]
    for listener, policy in ((BY_ONE_NAME, "Cluster"), (BY_NODE, "Local")):
        world.put(cluster(listeners=[INTERNAL, listener]))
        await operation.until_at_rest()
        assert policies(world) == {policy}
        assert [service["spec"]["ports"][0]["nodePort"] for service in outside(world)] == ports


async def test_a_listener_that_is_taken_away_leaves_no_port_behind() -> None:
    world, operation = await at_rest()
    listeners = cluster()["spec"]["listeners"]
    world.put(cluster(listeners=listeners[:1]))
    await operation.round()
    assert "fleet-external-0" in world.named("Service")  # a broker still advertises it
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.named("Service") == ["fleet-bootstrap", "fleet-brokers", "fleet-etcd"]
    assert world.one("ConfigMap", "fleet-config")["data"] == {}
    world.put(cluster())
    await operation.until_at_rest()
    assert "fleet-external-2000" in world.named("Service")
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_a_port_that_somebody_else_made_stays() -> None:
    world, operation = await at_rest()
    labels = names.labels("fleet", names.BROKER)
    spec = {"type": "NodePort", "ports": [{"port": 9094, "nodePort": 31000}]}
    service = {
        "kind": "Service",
        "metadata": {"name": "monitoring", "labels": labels},
        "spec": spec,
    }
    world.put(service)
    await operation.until_at_rest()
    assert "monitoring" in world.named("Service")
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
