"""Changes that a user makes to a running fleet, and the fleet's state as seen from outside."""

import asyncio
import json
import time
from collections import Counter
from typing import TypeVar

import msgspec
from confluent_kafka.admin import AdminClient
from logfleet.client.connection import Connection
from logfleet.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)

from e2e.harness.kube.fleet import (
    CLUSTERS,
    OPERATOR_NAMESPACE,
    PARTITIONS,
    Fleet,
    operator_pods,
    wait_brokers,
)
from e2e.harness.kube.kubernetes import Object, wait_for
from e2e.harness.kube.kubernetes_rig import Rig
from e2e.lab.commands import LabError

Answer = TypeVar("Answer", bound=msgspec.Struct)

DRAINED_WITHIN = "--timeout=240s"
ETCD_PODS = "app.kubernetes.io/component=etcd"
LED_WITHIN_S = 120
LEADERS_TRIED = 12
"""Each election moves the leader to one of the two other members."""


def change(fleet: Fleet, kind: str, name: str, spec: Object) -> None:
    """Change fields of the spec, as `kubectl edit` does; None removes a field."""
    patch = ("--type=merge", "-p", json.dumps({"spec": spec}))
    fleet.kubernetes.kubectl("patch", kind, name, *patch, namespace=fleet.namespace)


def change_cluster(fleet: Fleet, **spec: object) -> None:
    change(fleet, CLUSTERS, fleet.name, spec)


def set_brokers(fleet: Fleet, count: int) -> None:
    (pool,) = fleet.resource()["spec"]["pools"]
    change_cluster(fleet, pools=[{**pool, "replicas": count}])


def renew(fleet: Fleet) -> None:
    """Change the spec so that all brokers are replaced."""
    mark = f"logfleet.dev/renew={time.monotonic_ns()}"
    options = ("annotate", CLUSTERS, fleet.name, "--overwrite", mark)
    fleet.kubernetes.kubectl(*options, namespace=fleet.namespace)


def kill_operator(fleet: Fleet) -> None:
    """Kill all pods of the operator at once."""
    for pod in operator_pods(fleet.kubernetes, ready=False):
        options = ("--grace-period=0", "--force")
        fleet.kubernetes.kubectl(
            "delete", "pod", pod["metadata"]["name"], *options, namespace=OPERATOR_NAMESPACE
        )


def status(fleet: Fleet) -> Object:
    found: Object = fleet.resource()["status"]
    return found


def uids(fleet: Fleet) -> set[str]:
    """Return the uids of the brokers' pods."""
    return {str(pod["metadata"]["uid"]) for pod in fleet.broker_pods()}


def zones_of(fleet: Fleet, uids: set[str]) -> set[str]:
    """Return the zones of the brokers' pods that are missing or whose uid is not one of these."""
    there = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in fleet.broker_pods()}
    return {each["zone"] for each in fleet.brokers() if there.get(each["pod"]) not in uids}


def claims(fleet: Fleet) -> dict[str, str]:
    """Return the uid of each volume claim of the fleet, by name."""
    selector = f"logfleet.dev/cluster={fleet.name}"
    found = fleet.kubernetes.items("pvc", fleet.namespace, selector)
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def drained(fleet: Fleet) -> dict[str, str]:
    """Return, from their volume claims, how far brokers that are being removed are."""
    selector = f"logfleet.dev/cluster={fleet.name}"
    marks = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("logfleet.dev/drain")
        for each in fleet.kubernetes.items("pvc", fleet.namespace, selector)
    }
    return {name: mark for name, mark in marks.items() if mark}


def held(fleet: Fleet) -> dict[int, int]:
    """Return the number of replicas by broker id."""
    admin = AdminClient({"bootstrap.servers": fleet.outside, "socket.timeout.ms": 5000})
    return Counter(
        replica
        for topic in admin.list_topics(timeout=20).topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
    )


def registered(fleet: Fleet) -> set[int]:
    """Return the ids of all registered brokers, including those that do not run (KIP-1073)."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    answer = asyncio.run(_asked(fleet, request, DescribeClusterResponse))
    return {row.broker_id for row in answer.brokers}


def leader_epochs(fleet: Fleet) -> dict[tuple[str, int], int]:
    """Return the leader epoch of every partition, by topic and number."""
    answer = asyncio.run(_asked(fleet, MetadataRequest(topics=None), MetadataResponse))
    return {
        (str(topic.name), partition.partition_index): partition.leader_epoch
        for topic in answer.topics
        for partition in topic.partitions
    }


async def _asked(fleet: Fleet, request: msgspec.Struct, answer: type[Answer]) -> Answer:
    host, _, port = fleet.outside.split(",")[0].rpartition(":")
    connection = await Connection.connect(host, int(port), "changes")
    try:
        return await connection.request(request, answer)
    finally:
        connection.close()


def moves_of_leaders(before: dict[tuple[str, int], int], fleet: Fleet) -> list[int]:
    """Return how many times each partition changed its leader since `before`, by leader epochs."""
    now = leader_epochs(fleet)
    return [now[each] - epoch for each, epoch in before.items() if each in now]


def has_replicas(fleet: Fleet, topic: str, count: int) -> bool:
    """Return whether every partition of the load's topic has `count` replicas, all in sync."""
    admin = AdminClient({"bootstrap.servers": fleet.outside, "socket.timeout.ms": 5000})
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    counts = [(len(each.isrs), len(each.replicas)) for each in partitions]
    return counts == [(count, count)] * PARTITIONS


def is_spread(fleet: Fleet) -> bool:
    found = status(fleet)
    return not found["spreading"] and found["why"] == "all brokers are ready"


def node_of(fleet: Fleet, zone: str) -> str:
    return next(name for name, its in fleet.kubernetes.zone_of_node().items() if its == zone)


def etcd_leader(fleet: Fleet) -> str | None:
    """Return the pod of etcd's leader, according to the members' metrics."""
    for pod in fleet.kubernetes.items("pods", fleet.namespace, ETCD_PODS):
        name = str(pod["metadata"]["name"])
        path = f"/api/v1/namespaces/{fleet.namespace}/pods/http:{name}:2381/proxy/metrics"
        if "etcd_server_is_leader 1" in fleet.kubernetes.attempt("get", "--raw", path):
            return name
    return None


def zone_of_etcd_leader(fleet: Fleet) -> str:
    leader = wait_for("a leader of etcd", lambda: etcd_leader(fleet), LED_WITHIN_S)
    node = fleet.kubernetes.get("pod", leader, fleet.namespace)["spec"]["nodeName"]
    return fleet.kubernetes.zone_of_node()[node]


def lead_etcd_from(fleet: Fleet, zone: str) -> None:
    """Restart etcd's leader until the leader is in this zone."""
    for _ in range(LEADERS_TRIED):
        if zone_of_etcd_leader(fleet) == zone:
            return
        leader = wait_for("a leader of etcd", lambda: etcd_leader(fleet), LED_WITHIN_S)
        fleet.kubernetes.delete("pod", leader, fleet.namespace)
        fleet.kubernetes.wait_pod(leader, fleet.namespace, LED_WITHIN_S)
    raise LabError(f"etcd's leader did not come to zone {zone} in {LEADERS_TRIED} elections")


def drain(fleet: Fleet, node: str) -> None:
    """Drain a node as an administrator does: evict all pods, and respect disruption budgets."""
    # Spark drivers and the operator stay: an evicted driver is lost, and only this zone has the operator's image.
    options = (
        "--pod-selector=!spark-role,app.kubernetes.io/component!=operator",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        DRAINED_WITHIN,
    )
    fleet.kubernetes.kubectl("drain", node, *options, within_s=270)


def drain_all(fleet: Fleet, rig: Rig) -> None:
    """Drain every node in turn, each after all brokers are Ready again."""
    for zone in rig.zones:
        node = node_of(fleet, zone)
        with rig.part(f"zone {zone} drained and back"):
            try:
                drain(fleet, node)
            except LabError:
                rig.say(f"why: {status(fleet)['why']}")
                raise
            finally:
                fleet.kubernetes.kubectl("uncordon", node)
            wait_brokers(fleet)
