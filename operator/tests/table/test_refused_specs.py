"""While a part of a spec is refused, the last accepted spec and all other objects are managed."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from logfleet_operator.clusters import refusals
from logfleet_operator.kube import KubeError

from .operation import SETTINGS, Operation, at_rest, cluster, pool, rebalance, told, topic, why
from .world import World

pytestmark = pytest.mark.asyncio
READY = ("True", "Ready")
TYPO = {"zones": ["a", "b", "c", "typo"], **pool(replicas=4)}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a form that the CRD let pass": ({"scaling": {"throttle": "much"}}, "Invalid", "'much' is no"),
    "a value of a key": ({"config": {"log.retention.ms": "abc"}}, "Invalid", "log.retention.ms"),
    "a zone that etcd is in": ({"zones": ["a", "b"]}, "NotSupported", "volumes of etcd"),
    "a smaller volume": (pool(storage={"size": "1Gi"}), "NotSupported", "they only grow"),
    "a class that is not there": (
        {"pools": [*pool()["pools"], {**pool()["pools"][0], "name": "extra"}]},
        "Invalid",
        "there is no default one",
    ),
}

REFUSED_BEFORE = {"type": "Ready", "status": "False", "reason": "NotSupported", "message": ""}


def broker_images(world: World) -> set[str]:
    pods = (world.one("Pod", name) for name in world.named("Pod") if "main" in name)
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


async def some_rounds(operation: Operation, rounds: int = 8) -> None:
    for _ in range(rounds):
        await operation.round()


@pytest.mark.parametrize("what", REFUSED)
async def test_a_refused_spec_leaves_what_was_accepted_before_looked_after(what: str) -> None:
    spec, reason, sentence = REFUSED[what]
    world, operation = await at_rest()
    if what == "a class that is not there":
        world.remove_cluster_wide("StorageClass", "zonal")
    world.put(cluster(**spec, image="logfleet/broker:2"))
    await operation.until_at_rest()
    again = Operation(world)  # one that never read the spec before
    world.empty_members = {"fleet-etcd-0"}
    world.remove("Pod", "fleet-etcd-0")
    for kind, name in (
        ("PodDisruptionBudget", "fleet-brokers"),
        ("StatefulSet", "fleet-main-b"),
        ("Service", "fleet-bootstrap"),
    ):
        world.remove(kind, name)
    world.step()
    await again.until_at_rest()
    assert world.empty_members == set(), "the member was healed"
    assert "fleet-brokers" in world.named("PodDisruptionBudget")
    assert "fleet-main-b" in world.named("StatefulSet")
    assert "fleet-bootstrap" in world.named("Service")
    assert broker_images(world) == {"logfleet/broker:1"}, "half of a change is no change"
    assert world.ready("Cluster", "fleet") == ("False", reason)
    assert sentence in why(world)
    world.put(cluster(image="logfleet/broker:2"))
    await again.until_at_rest()
    assert broker_images(world) == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == READY


async def run_by_an_operator_of_before(monkeypatch: pytest.MonkeyPatch) -> World:
    """It did not write down which spec it had accepted, and it refused less."""
    with monkeypatch.context() as before:
        before.setattr(refusals, "config_refusals", lambda _: [])
        world, _ = await at_rest(config={"authorizer.class.name": "org.example.Authorizer"})
    record = copy.deepcopy(world.one("ConfigMap", "fleet-record"))
    del record["data"]["accepted"]
    world.touch(record)
    world.remove("Service", "fleet-bootstrap")
    return world


async def test_a_spec_that_an_operator_of_before_carried_out_is_looked_after_though_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await run_by_an_operator_of_before(monkeypatch)
    before = {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    await Operation(world).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Invalid")
    assert "authorizer.class.name" in why(world)
    assert "fleet-bootstrap" in world.named("Service")
    after = {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    assert after == before


@pytest.mark.parametrize("status", [{"observedGeneration": 0}, {"conditions": [REFUSED_BEFORE]}])
async def test_a_spec_that_the_operator_of_before_refused_or_never_read_is_not_looked_after(
    monkeypatch: pytest.MonkeyPatch, status: dict[str, Any]
) -> None:
    world = await run_by_an_operator_of_before(monkeypatch)
    live = world.one("Cluster", "fleet")
    world.touch({**live, "status": {**live["status"], **status}})
    await Operation(world).until_at_rest()
    assert "fleet-bootstrap" not in world.named("Service")


async def test_what_was_begun_goes_on_while_a_later_spec_is_refused_and_both_are_told() -> None:
    world, operation = await at_rest()
    world.put(cluster(image="logfleet/broker:2"))
    while not any(call.startswith("evict") for call in world.calls):
        await operation.round()
    world.put(cluster(image="logfleet/broker:3", config={"log.retention.ms": "abc"}))
    await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Invalid")
    assert "log.retention.ms" in why(world)
    assert "fleet-main-b-0" in why(world)
    await operation.until_at_rest()
    assert broker_images(world) == {"logfleet/broker:2"}


async def test_paused_is_obeyed_though_the_rest_of_the_spec_is_refused() -> None:
    world, operation = await at_rest()
    world.put(cluster(scaling={"throttle": "much"}, paused=True))
    await operation.until_at_rest()
    world.remove("Service", "fleet-bootstrap")
    await operation.until_at_rest()
    assert "fleet-bootstrap" not in world.named("Service")
    world.put(cluster(scaling={"throttle": "much"}))
    await operation.until_at_rest()
    assert "fleet-bootstrap" in world.named("Service")


async def test_a_spec_of_a_former_cluster_of_that_name_is_not_taken_for_accepted() -> None:
    world, operation = await at_rest()
    before = copy.deepcopy(world.one("ConfigMap", "fleet-record"))
    world.remove("Cluster", "fleet")
    world.put(cluster(config={"log.retention.ms": "abc"}))
    await operation.worker.resync()
    while (key := operation.worker.queue.take(world.now_s)) is not None:
        await operation.worker.work_on(key)
    assert world.one("ConfigMap", "fleet-record") == before
    world.step()
    await operation.until_at_rest()
    assert world.named("StatefulSet") == []
    assert world.ready("Cluster", "fleet") == ("False", "Invalid")


async def test_topics_go_on_and_keys_stay_as_they_were_accepted() -> None:
    world, operation = await at_rest(config={"log.retention.ms": 5})
    assert world.dynamic_config == {"log.retention.ms": "5"}
    world.put(cluster(config={"log.retention.ms": 6}, scaling={"throttle": "much"}))
    world.put(topic())
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == READY
    assert world.dynamic_config == {"log.retention.ms": "5"}


async def test_fields_of_a_newer_crd_are_ignored_and_told_once() -> None:
    world = World()
    newer = cluster(networkPolicy=True)
    newer["spec"]["pools"][0]["storage"]["snapshots"] = {"every": "1h"}
    world.put(newer)
    world.put(topic(schema="none"))
    world.put(rebalance(priority=1))
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert world.ready("Topic", "flights") == READY
    assert world.ready("Rebalance", "even-out") == ("False", "WaitingForApproval")
    warnings = world.one("Cluster", "fleet")["status"]["warnings"]
    assert {warning.partition(":")[0] for warning in warnings} == {
        "spec.networkPolicy",
        "spec.pools[0].storage.snapshots",
    }
    notes = [note for _, reason, note in told(world, "Cluster") if reason == "ConfigWarning"]
    assert notes == warnings
    world.remove("StatefulSet", "fleet-main-a")
    await operation.until_at_rest()
    assert "fleet-main-a" in world.named("StatefulSet")


async def test_a_node_port_that_somebody_took_keeps_no_broker_from_being_replaced() -> None:
    world, operation = await at_rest()
    world.remove("Service", "fleet-external-0")
    world.refused = {("Service", "fleet-external-0"): "provided port is already allocated"}
    world.put(cluster(image="logfleet/broker:2"))
    await some_rounds(operation, 20)
    assert broker_images(world) == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    said = "Kubernetes refuses Service fleet-external-0: provided port is already allocated"
    assert why(world) == said
    world.refused = {}
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY


async def test_a_schedule_that_kubernetes_refuses_stops_the_snapshots_only() -> None:
    snapshots = {"schedule": "61 * * * *", "claimName": "backups"}
    world = World()
    world.refused = {("CronJob", "fleet-snapshots"): "spec.schedule: Invalid value"}
    world.put(cluster(metadata={"managed": {"replicas": 3, "snapshots": snapshots}}))
    operation = Operation(world)
    await some_rounds(operation)
    assert broker_images(world) == {"logfleet/broker:1"}
    assert world.one("Cluster", "fleet")["status"]["readyReplicas"] == 3
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "refuses CronJob fleet-snapshots: spec.schedule: Invalid value" in why(world)


async def test_an_object_that_may_not_be_removed_stops_nothing_else() -> None:
    world, operation = await at_rest()
    world.has_node = lambda name: "typo" not in name
    world.put(cluster(**TYPO))
    await operation.until_at_rest()

    def forbid(number: int) -> None:
        if world.calls[number] == "delete PersistentVolumeClaim data-fleet-main-typo-0":
            raise KubeError(403, "Forbidden", "a policy says no")

    world.before_call = forbid
    world.put(cluster(image="logfleet/broker:2"))
    await some_rounds(operation, 20)
    assert broker_images(world) == {"logfleet/broker:2"}
    said = "Kubernetes refuses PersistentVolumeClaim data-fleet-main-typo-0: a policy says no"
    assert why(world) == said


async def test_an_object_of_somebody_else_stops_nothing_else() -> None:
    world, operation = await at_rest()
    world.remove("Service", "fleet-bootstrap")
    world.put({"kind": "Service", "metadata": {"name": "fleet-bootstrap"}, "spec": {"mine": True}})
    world.put(cluster(image="logfleet/broker:2"))
    await some_rounds(operation, 20)
    assert broker_images(world) == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert world.one("Service", "fleet-bootstrap")["spec"] == {"mine": True}


@pytest.mark.parametrize(
    "needed",
    [
        ("PodDisruptionBudget", "fleet-brokers"),
        ("ServiceAccount", "fleet-brokers"),
        ("Service", "fleet-brokers"),
        ("Service", "fleet-etcd"),
    ],
)
async def test_no_pod_is_replaced_while_what_it_needs_to_come_back_is_refused(
    needed: tuple[str, str],
) -> None:
    world, _ = await at_rest()
    before = {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    world.remove(*needed)
    world.refused = {needed: "exceeded quota"}
    operation = Operation(world, replace(SETTINGS, etcd_image="etcd:2"))
    world.put(cluster(image="logfleet/broker:2"))
    await some_rounds(operation, 20)
    after = {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    assert after == before
    assert f"no pod is replaced without {' '.join(needed)}" in why(world)


async def test_a_certificate_that_cannot_be_renewed_stops_nothing_else() -> None:
    world, operation = await at_rest()
    world.now_s += 600 * 86_400
    world.refused = {("Secret", "fleet-etcd-client"): "immutable"}
    world.put(cluster(image="logfleet/broker:2"))
    await some_rounds(operation, 20)
    assert broker_images(world) == {"logfleet/broker:2"}
    assert "Kubernetes refuses Secret fleet-etcd-client: immutable" in why(world)
