"""Brokers, volumes, zones and nodes go, one at a time, under producers, a group and a streaming Spark job: nothing is lost, no send fails.

The job runs through all of it, on a topic of its own that is written all the time; in the end it has counted each of its records once.
"""

import time

from e2e.harness.kube.fleet import CLUSTERS, Fleet, set_operator, wait_brokers
from e2e.harness.kube.kubernetes import condition, wait_for
from e2e.harness.kube.kubernetes_rig import Rig

AWAY_S = 10.0
"""How long a zone is away: longer than a lease, and than it takes to elect others."""
DRAINED_WITHIN = "--timeout=150s"


def wait_degraded(fleet: Fleet, status: str) -> None:
    def is_so() -> bool:
        found = condition(fleet.kubernetes.get(CLUSTERS, fleet.name, fleet.namespace), "Degraded")
        return found is not None and found["status"] == status

    wait_for(f"Degraded to be {status}", is_so, within_s=90)


def node_of(fleet: Fleet, zone: str) -> str:
    return next(name for name, its in fleet.kubernetes.zone_of_node().items() if its == zone)


def drain(fleet: Fleet, node: str) -> None:
    """As an administrator does: everything is evicted, disruption budgets are heard."""
    # A driver that is evicted is gone for good; whoever has streaming jobs moves them as they see fit.
    options = (
        "--pod-selector=!spark-role",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        DRAINED_WITHIN,
    )
    fleet.kubernetes.kubectl("drain", node, *options, within_s=180)


def drain_all(fleet: Fleet, rig: Rig) -> None:
    """Every node in turn; the next one when all brokers are Ready again."""
    for zone in rig.zones:
        node = node_of(fleet, zone)
        with rig.part(f"zone {zone} drained and back"):
            try:
                drain(fleet, node)
            finally:
                fleet.kubernetes.kubectl("uncordon", node)
            wait_brokers(fleet)


def test_a_broker_whose_pod_is_deleted(fleet, rig, load, end):
    victim = fleet.broker_pods()[0]["metadata"]
    fleet.kubernetes.delete("pod", victim["name"], fleet.namespace)
    end("pod deleted")


def test_a_broker_whose_pod_and_volume_are_deleted_is_filled_from_the_others(fleet, load, end):
    """It is kept away for a while: its partitions are served meanwhile, and the Cluster says what it lacks."""
    victim = fleet.brokers()[1]
    claim = f"data-{victim['pod']}"
    old = fleet.kubernetes.get("pvc", claim, fleet.namespace)["metadata"]["uid"]
    fleet.kubernetes.kubectl("cordon", victim["node"])
    try:
        fleet.kubernetes.delete("pvc", claim, fleet.namespace, wait=False)
        fleet.kubernetes.delete("pod", victim["pod"], fleet.namespace)
        load.wait_served()
        wait_degraded(fleet, "True")
    finally:
        fleet.kubernetes.kubectl("uncordon", victim["node"])
    end("pod and volume deleted")
    assert fleet.kubernetes.get("pvc", claim, fleet.namespace)["metadata"]["uid"] != old
    wait_degraded(fleet, "False")


def test_a_zone_that_loses_its_power(fleet, rig, load, end):
    rig.power_off("c")
    try:
        time.sleep(AWAY_S)  # that is the fault itself
    finally:
        rig.power_on("c")
    end("power of a zone cut")


def test_a_zone_that_is_cut_off(fleet, rig, load, end):
    rig.cut_off("a")
    try:
        time.sleep(AWAY_S)  # that is the fault itself
    finally:
        rig.join("a")
    end("zone cut off the network")


def test_nodes_that_are_drained_one_after_the_other(fleet, rig, load, end):
    drain_all(fleet, rig)
    end("every node drained")


def test_nodes_that_are_drained_while_the_operator_is_down(fleet, rig, load, end):
    set_operator(fleet.kubernetes, running=False)
    try:
        drain_all(fleet, rig)
        end("every node drained, no operator")
    finally:
        set_operator(fleet.kubernetes, running=True)


def test_the_streaming_job_has_counted_every_record_once(rig, streamed):
    """The last of this file: the job has read through all that was done above."""
    with rig.part("the streaming job's last records"):
        history, counted = streamed.end()
    assert history.failed == []
    assert counted == len(history.acknowledged) > 0
