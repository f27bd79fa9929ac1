"""What becomes of a Cluster: resources in, objects and status out."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from logfleet_operator import names
from logfleet_operator.clusters import certificates

from .disturbances import refuse
from .operation import SETTINGS, Operation, at_rest, cluster, pool, properties_of, why
from .world import World

pytestmark = pytest.mark.asyncio


def environment(world: World, stateful_set: str) -> dict[str, str]:
    pod = world.one("StatefulSet", stateful_set)["spec"]["template"]["spec"]
    return {entry["name"]: entry.get("value", "") for entry in pod["containers"][0]["env"]}


async def test_a_cluster_becomes_one_set_per_zone_and_all_that_belongs_to_it() -> None:
    world, _ = await at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.named("StatefulSet") == [
        "fleet-etcd",
        "fleet-main-a",
        "fleet-main-b",
        "fleet-main-c",
    ]
    assert world.named("Service") == [
        "fleet-bootstrap",
        "fleet-brokers",
        "fleet-etcd",
        "fleet-external-0",
        "fleet-external-1000",
        "fleet-external-2000",
    ]
    assert world.named("PodDisruptionBudget") == ["fleet-brokers", "fleet-etcd"]
    assert world.named("Secret") == ["fleet-etcd-ca", "fleet-etcd-client", "fleet-etcd-server"]
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 2
    assert world.one("PodDisruptionBudget", "fleet-etcd")["spec"]["minAvailable"] == 2
    uid = world.one("Cluster", "fleet")["metadata"]["uid"]
    for (kind, _, name), live in world.objects.items():
        if live["metadata"].get("labels", {}).get(names.CLUSTER_LABEL) and kind not in {
            "Pod",
            "PersistentVolumeClaim",
        }:
            owners = live["metadata"]["ownerReferences"]
            assert [owner["uid"] for owner in owners] == [uid], name


async def test_status_tells_addresses_brokers_and_ids() -> None:
    world, _ = await at_rest()
    status = world.one("Cluster", "fleet")["status"]
    assert status["replicas"] == status["readyReplicas"] == 3
    assert status["metadata"] == {"members": 3, "readyMembers": 3}
    internal, external = status["listeners"]
    assert internal == {
        "name": "internal",
        "type": "internal",
        "bootstrap": "fleet-bootstrap.air.svc:9092",
    }
    ports = [
        world.one("Service", f"fleet-external-{broker}")["spec"]["ports"][0]["nodePort"]
        for broker in (0, 1000, 2000)
    ]
    assert external["bootstrap"] == ",".join(f"10.0.0.1:{port}" for port in ports)
    assert [broker["id"] for broker in status["brokers"]] == [0, 1000, 2000]
    assert status["brokers"][1] == {
        "id": 1000,
        "pool": "main",
        "zone": "b",
        "pod": "fleet-main-b-0",
        "node": "node-1",
        "ready": True,
    }
    assert [given["base"] for given in status["ranges"]] == [0, 1000, 2000]


async def test_brokers_start_only_when_etcd_works_which_bootstraps_only_once() -> None:
    world = World()
    world.broken_images = {"quay.io/coreos/etcd:v3.6.5"}
    world.put(cluster())
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "waiting for etcd: 0 of 3 members are ready" in why(world)
    assert "ImagePullBackOff" in why(world)
    assert world.named("StatefulSet") == ["fleet-etcd"]
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == "bootstrapping"
    world.broken_images = set()
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == "established"


async def test_an_etcd_outside_needs_no_etcd_here() -> None:
    world, _ = await at_rest(metadata={"endpoints": ["etcd.infra:2379"]})
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.named("Secret") == []
    assert "fleet-etcd" not in world.named("StatefulSet")
    properties = properties_of(world)
    assert "logfleet.etcd.endpoints=etcd.infra:2379\n" in properties
    assert "logfleet.etcd.ca.location" not in properties


async def test_three_brokers_keep_three_replicas_and_acknowledge_with_two() -> None:
    world, _ = await at_rest()
    properties = properties_of(world)
    assert "default.replication.factor=3\n" in properties
    assert "offsets.topic.replication.factor=3\n" in properties
    assert "transaction.state.log.replication.factor=3\n" in properties
    assert "transaction.state.log.min.isr=2\n" in properties
    assert "min.insync.replicas=2\n" in properties


async def test_what_the_spec_says_of_replicas_comes_before_the_default() -> None:
    world, _ = await at_rest(config={"default.replication.factor": 2})
    properties = properties_of(world)
    assert "default.replication.factor=2\n" in properties
    assert "default.replication.factor=3\n" not in properties


async def test_without_zones_there_is_one_set_and_no_rack() -> None:
    world, _ = await at_rest(zones=[])
    assert "fleet-main" in world.named("StatefulSet")
    assert environment(world, "fleet-main")["BROKER_RACK"] == ""


@pytest.mark.parametrize(
    "spec, reason, sentence",
    [
        (
            {"scaling": {"throttle": "much"}},
            "Invalid",
            "spec.scaling.throttle: 'much' is not a number",
        ),
        (pool(storage={"size": "1Gi"}), "NotSupported", "they only grow"),
        ({"config": {"num.partitions": "many"}}, "Invalid", "spec.config.num.partitions"),
        (
            {"config": {"config.providers": "env"}},
            "Invalid",
            "spec.config.config.providers: config.providers: variables such as",
        ),
        (
            {"config": {"super.users": "User:admin"}},
            "Invalid",
            "spec.config.super.users: super.users asks for protection",
        ),
        ({"metadata": {}}, "Invalid", "spec.metadata: write exactly one of managed and endpoints"),
    ],
)
async def test_what_cannot_be_done_is_told_and_changes_nothing(
    spec: dict[str, Any], reason: str, sentence: str
) -> None:
    world, operation = await at_rest()
    told = {"Cluster", "Topic", "Event"}
    before = {key: live for key, live in world.objects.items() if key[0] not in told}
    world.put(cluster(**{**spec, "image": "logfleet/broker:2"}))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", reason)
    assert sentence in why(world)
    after = {key: live for key, live in world.objects.items() if key[0] not in told}
    assert after == before
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_while_paused_nothing_happens_and_ready_stays_what_it_was() -> None:
    world, operation = await at_rest()
    world.put(cluster(paused=True, **pool(replicas=6)))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    conditions = {
        condition["type"]: condition["status"]
        for condition in world.one("Cluster", "fleet")["status"]["conditions"]
    }
    assert conditions["Paused"] == "True"
    assert len([name for name in world.named("Pod") if "main" in name]) == 3
    world.put(cluster(**pool(replicas=6)))
    await operation.until_at_rest()
    assert len([name for name in world.named("Pod") if "main" in name]) == 6


@pytest.mark.parametrize(
    "classes, sentence",
    [
        ({}, "there is no default one"),
        ({"fast": "Immediate"}, "StorageClass fast binds volumes at once"),
    ],
)
async def test_volumes_must_wait_for_their_pods_zone(
    classes: dict[str, str], sentence: str
) -> None:
    world = World()
    world.remove_cluster_wide("StorageClass", "zonal")
    for name, mode in classes.items():
        world.add_storage_class(name, mode)
    world.put(cluster())
    await Operation(world).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Invalid")
    assert sentence in why(world)
    assert world.named("StatefulSet") == []


async def test_an_object_of_somebody_else_is_not_taken_over() -> None:
    world = World()
    world.put({"kind": "Service", "metadata": {"name": "fleet-bootstrap"}, "spec": {"mine": True}})
    world.put(cluster())
    await Operation(world).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "Service fleet-bootstrap exists and is not this Cluster's" in why(world)
    assert world.one("Service", "fleet-bootstrap")["spec"] == {"mine": True}


async def test_whatever_is_deleted_comes_back_the_same() -> None:
    world, operation = await at_rest()
    before = world.snapshot()
    port = world.one("Service", "fleet-external-1000")["spec"]["ports"]
    for kind, name in (
        ("Service", "fleet-external-1000"),
        ("Service", "fleet-brokers"),
        ("ServiceAccount", "fleet-brokers"),
        ("PodDisruptionBudget", "fleet-brokers"),
        ("ConfigMap", "fleet-config"),
        ("ConfigMap", next(name for name in world.named("ConfigMap") if "config-" in name)),
        ("ConfigMap", "fleet-record"),
        ("StatefulSet", "fleet-main-b"),
        ("Pod", "fleet-main-c-0"),
    ):
        world.remove(kind, name)
        await operation.until_at_rest()
    assert world.snapshot() == before
    assert world.one("Service", "fleet-external-1000")["spec"]["ports"] == port


async def test_a_cluster_made_again_finds_its_ids_and_its_etcd_by_their_volumes() -> None:
    # Zone b first: ids do not follow the order of zones.
    world, operation = await at_rest(zones=["b", "a", "c"])
    world.remove("Cluster", "fleet")
    world.step()
    assert world.named("Pod") == world.named("ConfigMap") == []
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert environment(world, "fleet-main-b")["BROKER_BASE"] == "0"
    assert environment(world, "fleet-main-a")["BROKER_BASE"] == "1000"
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == "established"
    assert "apply ConfigMap fleet-record" in world.calls


async def test_a_cluster_made_again_while_etcds_volumes_go_begins_when_they_are_gone() -> None:
    world, operation = await at_rest()
    world.remove("Cluster", "fleet")
    world.step()
    # What `kubectl delete pvc --wait=false` leaves until the pods are gone.
    for name in world.named("PersistentVolumeClaim"):
        going = world.one("PersistentVolumeClaim", name)["metadata"]
        going["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "waiting until PersistentVolumeClaim data-fleet-etcd-0 is deleted" in why(world)
    assert world.named("StatefulSet") == world.named("ConfigMap") == []
    for name in world.named("PersistentVolumeClaim"):
        world.remove("PersistentVolumeClaim", name)
    world.idle_images = {SETTINGS.etcd_image}
    await operation.until_at_rest()
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == "bootstrapping"
    world.idle_images = set()
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_contradicting_broker_ids_stop_everything() -> None:
    world, operation = await at_rest()
    world.one("PersistentVolumeClaim", "data-fleet-main-b-0")["metadata"]["labels"][
        names.BASE_LABEL
    ] = "7000"
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "PersistentVolumeClaim data-fleet-main-b-0 says 7000" in why(world)


@pytest.mark.parametrize(
    "copy_name", ["data-fleet-main-a-0-restore", "data-fleet-main-a-0-7", "old-fleet-main-a-7"]
)
async def test_a_copy_of_a_volume_claim_says_nothing_about_brokers(copy_name: str) -> None:
    world, operation = await at_rest()
    original = world.one("PersistentVolumeClaim", "data-fleet-main-a-0")
    labels = dict(original["metadata"]["labels"])
    world.put({**original, "metadata": {"name": copy_name, "labels": labels}, "spec": {}})
    before = len(world.named("Pod"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.put(cluster(config={"num.partitions": 4}))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert len(world.named("Pod")) == before
    config = properties_of(world)
    assert "num.partitions=4" in config


async def test_a_set_that_lost_its_labels_gets_them_back() -> None:
    world, operation = await at_rest()
    del world.one("StatefulSet", "fleet-main-a")["metadata"]["labels"][names.COMPONENT_LABEL]
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    labels = world.one("StatefulSet", "fleet-main-a")["metadata"]["labels"]
    assert labels[names.COMPONENT_LABEL] == names.BROKER


async def test_objects_of_a_former_cluster_are_waited_for() -> None:
    world, operation = await at_rest()
    world.remove("Cluster", "fleet")
    world.put(cluster())
    calls = len(world.calls)
    await operation.worker.resync()
    while (key := operation.worker.queue.take(world.now_s)) is not None:
        await operation.worker.work_on(key)
    assert "waiting until objects of a former Cluster are gone" in why(world)
    assert not any(call.startswith("apply") for call in world.calls[calls:])


async def test_what_others_add_to_our_objects_stays_and_stops_nothing() -> None:
    world, operation = await at_rest()
    port = {"name": "metrics", "port": 7777, "protocol": "TCP", "nodePort": 31777}
    template = {
        "containers": [{"name": "mesh", "image": "mesh:1"}],
        "volumes": [{"name": "mesh", "emptyDir": {}}],
        "topologySpreadConstraints": [
            {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    }
    container = {
        "env": [{"name": "RELOADED", "value": "1"}],
        "volumeMounts": [{"name": "mesh", "mountPath": "/mesh"}],
    }
    for service in ("fleet-bootstrap", "fleet-external-0"):
        add(world, "Service", service, ["spec"], {"ports": [port]})
    for stateful_set in ("fleet-etcd", "fleet-main-a"):
        pod = ["spec", "template", "spec"]
        add(world, "StatefulSet", stateful_set, pod, template)
        add(world, "StatefulSet", stateful_set, [*pod, "containers", 0], container)
    addresses = world.one("Cluster", "fleet")["status"]["listeners"]
    world.put(cluster(image="logfleet/broker:2"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.one("Pod", "fleet-main-c-0")["spec"]["containers"][0]["image"].endswith(":2")
    assert world.one("Cluster", "fleet")["status"]["listeners"] == addresses
    assert port in world.one("Service", "fleet-bootstrap")["spec"]["ports"]
    assert environment(world, "fleet-main-a")["RELOADED"] == "1"
    pod = world.one("Pod", "fleet-main-a-0")["spec"]
    assert [each["name"] for each in pod["containers"]] == ["broker", "mesh"]
    world.calls.clear()
    await operation.round()
    assert not any(call.startswith("apply") for call in world.calls)


def add(
    world: World, kind: str, name: str, path: Sequence[str | int], lists: dict[str, Any]
) -> None:
    """Somebody else puts entries behind those of lists of an object."""
    live = copy.deepcopy(world.one(kind, name))
    found: Any = live
    for step in path:
        found = found[step]
    for field, entries in lists.items():
        found[field] = [*found[field], *copy.deepcopy(entries)]
    live["metadata"]["generation"] += 1
    world.touch(live)


async def test_volume_claims_do_not_say_what_release_they_are_of() -> None:
    world, _ = await at_rest()
    claims = [
        world.one("PersistentVolumeClaim", name) for name in world.named("PersistentVolumeClaim")
    ]
    assert {claim["metadata"]["labels"][names.CLUSTER_LABEL] for claim in claims} == {"fleet"}
    assert not [claim for claim in claims if names.INSTANCE_LABEL in claim["metadata"]["labels"]]


async def test_sets_whose_volume_claims_began_with_other_labels_keep_them() -> None:
    world, _ = await at_rest()
    for name in world.named("StatefulSet"):
        live = copy.deepcopy(world.one("StatefulSet", name))
        (template,) = live["spec"]["volumeClaimTemplates"]
        template["metadata"]["labels"][names.INSTANCE_LABEL] = "fleet"
        world.touch(live)
    before = {name: world.one("StatefulSet", name)["spec"] for name in world.named("StatefulSet")}
    world.put(cluster(image="logfleet/broker:2"))
    operation = Operation(world, replace(SETTINGS, etcd_image="etcd:2"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    for name, spec in before.items():
        after = world.one("StatefulSet", name)["spec"]
        assert after["template"] != spec["template"]
        assert after["volumeClaimTemplates"] == spec["volumeClaimTemplates"]


async def test_certificates_are_renewed_in_time_by_the_same_authority() -> None:
    world, operation = await at_rest()
    before = {name: world.one("Secret", name)["data"] for name in world.named("Secret")}
    world.now_s += (certificates.LEAF_DAYS - certificates.RENEW_BEFORE.days + 1) * 86_400
    await operation.until_at_rest()
    after = {name: world.one("Secret", name)["data"] for name in world.named("Secret")}
    assert after["fleet-etcd-ca"] == before["fleet-etcd-ca"]
    for name in ("fleet-etcd-server", "fleet-etcd-client"):
        assert after[name]["tls.crt"] != before[name]["tls.crt"]
        assert after[name]["ca.crt"] == before[name]["ca.crt"]
    # etcd reads its files at every handshake, brokers when they start
    replaced = [call for call in world.calls if call.startswith(("evict", "delete"))]
    assert replaced == [f"evict Pod fleet-main-{zone}-0" for zone in "abc"]


async def test_near_the_authoritys_end_leaves_are_not_issued_again_and_again() -> None:
    world, operation = await at_rest()
    world.now_s += (certificates.AUTHORITY_DAYS - 30) * 86_400
    await operation.until_at_rest()
    world.calls.clear()
    await operation.round()
    assert not any(call.startswith("apply Secret") for call in world.calls)


async def test_a_lost_authority_is_told_when_it_is_needed_and_never_replaced() -> None:
    world, operation = await at_rest()
    world.remove("Secret", "fleet-etcd-ca")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.remove("Secret", "fleet-etcd-client")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "Secret fleet-etcd-ca is gone" in why(world)
    assert "fleet-etcd-ca" not in world.named("Secret")


async def test_a_lost_authority_is_told_before_the_certificates_it_issued_end() -> None:
    world, operation = await at_rest()
    world.remove("Secret", "fleet-etcd-ca")
    world.now_s += (certificates.LEAF_DAYS - 30) * 86_400
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "restore it from a backup" in why(world)


async def test_a_member_of_etcd_that_lost_its_data_does_not_start_and_status_tells_why() -> None:
    world, operation = await at_rest()
    world.empty_members = {"fleet-etcd-1"}
    world.etcd.unavailable = "no leader"
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "fleet-etcd-1 lost its data and may not vote again" in why(world)


async def test_a_cluster_that_is_being_deleted_is_left_alone() -> None:
    world, operation = await at_rest()
    world.one("Cluster", "fleet")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.remove("Service", "fleet-brokers")
    await operation.until_at_rest()
    assert "fleet-brokers" not in world.named("Service")


async def test_a_failing_list_keeps_nobody_from_working_later() -> None:
    world = World()
    refuse(world, 5)
    world.put(cluster())
    await Operation(world).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
