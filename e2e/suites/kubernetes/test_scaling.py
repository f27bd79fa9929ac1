"""Brokers come and go, topics get more replicas and fewer, under producers, a group and a streaming Spark job; the operator is killed in the midst of it.

Part of `make e2e-full`: it takes minutes for itself. Elsewhere a shrink is refused (Strimzi without Cruise Control: ScaleDownPreventionCheck) or leaves
replicas on brokers that are gone.
"""

import json
import time
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient

from e2e.harness.kube.fleet import (
    CLUSTERS,
    OPERATOR_NAMESPACE,
    TOPICS,
    Fleet,
    operator_pods,
    wait_brokers,
)
from e2e.harness.kube.kubernetes import wait_for
from e2e.harness.kube.load import PARTITIONS

pytestmark = pytest.mark.full
SPREAD_WITHIN_S = 300
EMPTY_WITHIN_S = 420
ROLLED_WITHIN_S = 600


def set_brokers(fleet: Fleet, count: int) -> None:
    """As `kubectl edit` does."""
    (pool,) = fleet.resource()["spec"]["pools"]
    change(fleet, CLUSTERS, fleet.name, {"pools": [{**pool, "replicas": count}]})


def change(fleet: Fleet, kind: str, name: str, spec: dict[str, object]) -> None:
    patch = ("--type=merge", "-p", json.dumps({"spec": spec}))
    fleet.kubernetes.kubectl("patch", kind, name, *patch, namespace=fleet.namespace)


def held(fleet: Fleet) -> dict[int, int]:
    """Replicas by broker id."""
    admin = AdminClient({"bootstrap.servers": fleet.outside, "socket.timeout.ms": 5000})
    counts: dict[int, int] = {}
    for topic in admin.list_topics(timeout=20).topics.values():
        for partition in topic.partitions.values():
            for each in partition.replicas:
                counts[each] = counts.get(each, 0) + 1
    return counts


def kill_operator(fleet: Fleet) -> None:
    for pod in operator_pods(fleet.kubernetes, ready=False):
        options = ("--grace-period=0", "--force")
        fleet.kubernetes.kubectl(
            "delete", "pod", pod["metadata"]["name"], *options, namespace=OPERATOR_NAMESPACE
        )


def status(fleet: Fleet) -> dict[str, object]:
    found: dict[str, object] = fleet.resource()["status"]
    return found


def test_three_brokers_become_six(fleet, rig, load, end):
    with rig.part("three brokers become six"):
        set_brokers(fleet, 6)
        wait_for("six brokers to be wanted", lambda: status(fleet)["replicas"] == 6, 60)
        wait_brokers(fleet)
        wait_for("new brokers to have a share", lambda: len(held(fleet)) == 6, SPREAD_WITHIN_S)
        kill_operator(fleet)
        done = partial(is_spread, fleet)
        wait_for("all replicas to be spread", done, SPREAD_WITHIN_S)
    rig.say(f"replicas by broker: {held(fleet)}")
    end("3 -> 6 brokers, operator killed")


def test_six_brokers_are_replaced_zone_by_zone(fleet, rig, load, end):
    """As a person asks for it by the annotation; a zone's power is cut in the midst of it."""
    before = uids(fleet)
    with rig.part("six brokers are replaced"):
        renew = f"logfleet.dev/renew={time.monotonic_ns()}"
        options = ("annotate", CLUSTERS, fleet.name, "--overwrite", renew)
        fleet.kubernetes.kubectl(*options, namespace=fleet.namespace)
        wait_for("the first to be replaced", lambda: before - uids(fleet), 120)
        rig.power_off("c")
        try:
            load.wait_served()
        finally:
            rig.power_on("c")
        wait_for("all to be replaced", lambda: not before & uids(fleet), ROLLED_WITHIN_S)
        fleet.wait_ready()
    end("6 brokers rolled, power of a zone cut")


def test_six_brokers_become_three_while_a_zone_has_no_power(fleet, rig, load, end):
    with rig.part("six brokers become three"):
        set_brokers(fleet, 3)
        wait_for("a drain", lambda: "draining brokers" in str(status(fleet)["why"]), 60)
        rig.power_off("b")
        try:
            kill_operator(fleet)
            load.wait_served()
        finally:
            rig.power_on("b")
        wait_for("three pods", lambda: len(fleet.broker_pods()) == 3, EMPTY_WITHIN_S)
        fleet.wait_ready()
    assert len(held(fleet)) == 3
    end("6 -> 3 brokers, power cut, operator killed")


def is_spread(fleet: Fleet) -> bool:
    return not status(fleet)["spreading"] and status(fleet)["why"] == "all brokers are ready"


def uids(fleet: Fleet) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in fleet.broker_pods()}


@pytest.mark.parametrize("load", [1], indirect=True)
def test_a_topic_of_one_replica_gets_three_and_two(fleet, load, end):
    for count in (3, 2):
        change(fleet, TOPICS, load.topic, {"replicas": count})
        has_all = partial(has_replicas, fleet, load.topic, count)
        wait_for(f"{count} replicas", has_all, 120)
        fleet.wait_topic(load.topic)
        load.wait_served()
    end("RF 1 -> 3 -> 2")


def has_replicas(fleet: Fleet, topic: str, count: int) -> bool:
    """Whether every partition has so many, all in sync."""
    admin = AdminClient({"bootstrap.servers": fleet.outside, "socket.timeout.ms": 5000})
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    counts = [(len(each.isrs), len(each.replicas)) for each in partitions]
    return counts == [(count, count)] * PARTITIONS


def test_the_streaming_job_has_counted_every_record_once(rig, streamed):
    with rig.part("the streaming job's last records"):
        history, counted = streamed.end()
    assert history.failed == []
    assert counted == len(history.acknowledged) > 0
