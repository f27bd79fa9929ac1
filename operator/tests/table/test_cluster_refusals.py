"""What becomes of a Cluster whose objects Kubernetes refuses, or cannot make now."""

import pytest
from logfleet_operator.kube import KubeUnavailable

from .operation import Operation, at_rest, cluster, why
from .world import World

pytestmark = pytest.mark.asyncio


async def test_what_kubernetes_refuses_is_told_and_tried_again() -> None:
    world = World()
    world.put(cluster())
    world.refused = {("Service", "fleet-bootstrap"): "exceeded quota"}
    operation = Operation(world)
    await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "exceeded quota" in why(world)
    world.refused = {}
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


def break_webhook(world: World, refused: str) -> None:
    """Let no such call succeed, as with an admission webhook that cannot be called."""

    def check(made: int) -> None:
        if world.calls[made] == refused:
            raise KubeUnavailable(
                'HTTP 500: failed calling webhook "policy.example.org": '
                f"read tcp 10.0.0.5:{40_000 + made}->10.0.0.9:443: i/o timeout"
            )

    world.before_call = check


async def some_rounds(operation: Operation) -> None:
    """What fails is tried again for ever: this never comes to rest."""
    for _ in range(4):
        await operation.round()


async def test_what_kubernetes_cannot_carry_out_is_told_once_and_tried_again() -> None:
    world = World()
    world.put(cluster())
    break_webhook(world, "apply Service fleet-bootstrap")
    operation = Operation(world)
    await some_rounds(operation)
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert 'failed calling webhook "policy.example.org"' in why(world)
    # Each write of status is an event, and an event is looked at without the pause after a failure.
    assert world.calls.count("apply Service fleet-bootstrap") > 1
    assert world.calls.count("status Cluster fleet") == 1
    world.before_call = lambda _: None
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert why(world) == "all brokers are ready"


async def test_a_change_that_kubernetes_cannot_carry_out_is_not_ready() -> None:
    world, operation = await at_rest()
    break_webhook(world, "apply StatefulSet fleet-main-a")
    world.put(cluster(image="logfleet/broker:2"))
    await some_rounds(operation)
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    live = world.one("Cluster", "fleet")
    assert live["status"]["observedGeneration"] == live["metadata"]["generation"]
    assert "failed calling webhook" in why(world)


async def test_a_cluster_that_is_as_written_stays_ready_while_kubernetes_is_away() -> None:
    world, operation = await at_rest()
    break_webhook(world, "list StatefulSet")
    await some_rounds(operation)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert "failed calling webhook" in why(world)
