"""Brokers, volumes, zones and nodes go, one at a time, under producers, a group and a streaming Spark job: nothing is lost, no send fails.

The job runs through all of it, on a topic of its own that is written all the time; in the end it has counted each of its records once.
"""

import time

import pytest

from e2e.harness.kube.changes import drain_all
from e2e.harness.kube.fleet import CLUSTERS, Fleet, set_operator
from e2e.harness.kube.kubernetes import condition, wait_for

AWAY_S = 10.0
"""How long a zone is away: longer than a lease, and than it takes to elect others."""


def wait_degraded(fleet: Fleet, status: str) -> None:
    def is_so() -> bool:
        found = condition(fleet.kubernetes.get(CLUSTERS, fleet.name, fleet.namespace), "Degraded")
        return found is not None and found["status"] == status

    wait_for(f"Degraded to be {status}", is_so, within_s=90)


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


@pytest.mark.full
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


@pytest.mark.full
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
