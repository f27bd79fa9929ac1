"""Brokers come and go, topics get more replicas and fewer, under producers, a group and a streaming Spark job; the operator is killed in the midst of it.

Part of `make e2e-full`: it takes minutes for itself. Elsewhere a shrink is refused (Strimzi without Cruise Control: ScaleDownPreventionCheck) or leaves
replicas on brokers that are gone.
"""

from functools import partial

import pytest

from e2e.harness.kube.changes import (
    change,
    change_cluster,
    claims,
    drained,
    has_replicas,
    held,
    is_spread,
    kill_operator,
    lead_etcd_from,
    registered,
    set_brokers,
    status,
    zone_of_etcd_leader,
)
from e2e.harness.kube.fleet import REBALANCES, TOPICS, example, wait_brokers
from e2e.harness.kube.kubernetes import wait_for

pytestmark = pytest.mark.full
SPREAD_WITHIN_S = 300
EMPTY_WITHIN_S = 420


def test_three_brokers_become_six_while_a_zone_has_no_power(fleet, rig, load, end):
    with rig.part("three brokers become six"):
        set_brokers(fleet, 6)
        wait_for("six brokers to be wanted", lambda: status(fleet)["replicas"] == 6, 60)
        wait_brokers(fleet)
        wait_for("new brokers to have a share", lambda: len(held(fleet)) == 6, SPREAD_WITHIN_S)
        rig.power_off("b")
        try:
            kill_operator(fleet)
            load.wait_served()
        finally:
            rig.power_on("b")
        done = partial(is_spread, fleet)
        wait_for("all replicas to be spread", done, SPREAD_WITHIN_S)
    rig.say(f"replicas by broker: {held(fleet)}")
    end("3 -> 6 brokers, power cut, operator killed")


def test_six_brokers_become_three_while_a_zone_has_no_power(fleet, rig, load, end):
    """With the zone go etcd's leader and, in this lab, one of two name servers."""
    with rig.part("etcd's leader is in zone b"):
        lead_etcd_from(fleet, "b")
        fleet.wait_ready()
    with rig.part("six brokers become three"):
        set_brokers(fleet, 3)
        wait_for("a drain", lambda: "draining brokers" in str(status(fleet)["why"]), 60)
        assert zone_of_etcd_leader(fleet) == "b"
        rig.power_off("b")
        try:
            kill_operator(fleet)
            load.wait_served()
        finally:
            rig.power_on("b")
        wait_for("three pods", lambda: len(fleet.broker_pods()) == 3, EMPTY_WITHIN_S)
        fleet.wait_ready()
    assert len(held(fleet)) == 3
    wait_for("three brokers to be forgotten", lambda: len(registered(fleet)) == 3, 60)
    wait_for("their claims to say so", lambda: set(drained(fleet).values()) == {"forgotten"}, 60)
    assert len(drained(fleet)) == 3
    end("6 -> 3 brokers, power of etcd's leader cut, operator killed")


def test_a_zone_is_taken_from_a_pool_and_then_the_pool_away(fleet, rig, load, end):
    """Their brokers' ids are forgotten, and their volumes stay or go, as it is written."""
    (main,) = fleet.resource()["spec"]["pools"]
    extra = {**main, "name": "extra", "zones": ["a", "b"], "replicas": 2}
    known = registered(fleet)
    with rig.part("a second pool in two zones"):
        change_cluster(fleet, pools=[main, extra])
        wait_for("five brokers to be wanted", lambda: status(fleet)["replicas"] == 5, 60)
        wait_brokers(fleet)
        wait_for("new brokers to have a share", lambda: len(held(fleet)) == 5, SPREAD_WITHIN_S)
    (one,) = (each for each in fleet.brokers() if (each["pool"], each["zone"]) == ("extra", "a"))
    (other,) = (each for each in fleet.brokers() if (each["pool"], each["zone"]) == ("extra", "b"))
    with rig.part("a zone is taken from it"):
        change_cluster(fleet, pools=[main, {**extra, "zones": ["a"], "replicas": 1}])
        kill_operator(fleet)
        left = {*known, one["id"]}
        wait_for(
            "the zone's broker to be forgotten", lambda: registered(fleet) == left, EMPTY_WITHIN_S
        )
        mark = f"data-{other['pod']}"
        wait_for("its claim to stay", lambda: drained(fleet).get(mark) == "forgotten", 60)
        fleet.wait_ready()
    with rig.part("the pool is taken away with its volumes"):
        change_cluster(fleet, pools=[main], scaling={"volumes": "Delete"})
        kill_operator(fleet)
        wait_for(
            "the pool's broker to be forgotten", lambda: registered(fleet) == known, EMPTY_WITHIN_S
        )
        wait_for(
            "no claim of the pool", lambda: not any("-extra-" in each for each in claims(fleet)), 60
        )
        fleet.wait_ready()
    assert drained(fleet) == {}
    assert len(fleet.broker_pods()) == 3
    change_cluster(fleet, scaling=None)
    fleet.wait_ready()
    end("a zone and a pool taken away, operator killed")


def test_a_rebalance_is_approved_and_carried_out_over_the_death_of_the_operator(
    fleet, rig, load, end
):
    """A fourth broker that gets nothing by itself."""
    change_cluster(fleet, scaling={"onScaleUp": "None"})
    set_brokers(fleet, 4)
    wait_for("four brokers to be wanted", lambda: status(fleet)["replicas"] == 4, 60)
    wait_brokers(fleet)
    fleet.wait_ready()
    assert len(held(fleet)) == 3
    fleet.kubernetes.apply(example("rebalance"), namespace=fleet.namespace)
    name = example("rebalance")["metadata"]["name"]

    def phase() -> str:
        found = fleet.kubernetes.get(REBALANCES, name, fleet.namespace)
        return str(found.get("status", {}).get("phase"))

    wait_for("a proposal", lambda: phase() == "Proposed", 60)
    with rig.part("a rebalance"):
        change(fleet, REBALANCES, name, {"approved": True})
        wait_for("it to run", lambda: phase() == "Running", 60)
        kill_operator(fleet)
        fleet.kubernetes.wait_condition(REBALANCES, name, fleet.namespace, within_s=SPREAD_WITHIN_S)
    found = fleet.kubernetes.get(REBALANCES, name, fleet.namespace)["status"]
    rig.say(f"proposal: {found['proposal']['moves']} moves; {found['why']}")
    counts = held(fleet)
    rig.say(f"replicas by broker: {counts}")
    assert len(counts) == 4
    fleet.kubernetes.delete(REBALANCES, name, fleet.namespace)
    set_brokers(fleet, 3)
    wait_for("three pods", lambda: len(fleet.broker_pods()) == 3, EMPTY_WITHIN_S)
    change_cluster(fleet, scaling=None)
    fleet.wait_ready()
    end("a Rebalance, operator killed")


@pytest.mark.parametrize("load", [1], indirect=True)
def test_a_topic_of_one_replica_gets_three_and_two(fleet, load, end):
    for count in (3, 2):
        change(fleet, TOPICS, load.topic, {"replicas": count})
        kill_operator(fleet)
        has_all = partial(has_replicas, fleet, load.topic, count)
        wait_for(f"{count} replicas", has_all, 120)
        fleet.wait_topic(load.topic)
        load.wait_served()
    end("RF 1 -> 3 -> 2, operator killed")


def test_the_streaming_job_has_counted_every_record_once(rig, streamed):
    with rig.part("the streaming job's last records"):
        history, counted = streamed.end()
    assert history.failed == []
    assert counted == len(history.acknowledged) > 0
