"""What is lost or mistyped under producers, a group and a streaming Spark job: volumes of a broker and of etcd, the name of a zone; the operator is killed in the midst of it.

Part of `make e2e-full`.
"""

import time

import pytest

from e2e.harness.kube.changes import change_cluster, claims, held, kill_operator, status
from e2e.harness.kube.fleet import set_operator
from e2e.harness.kube.kubernetes import condition, wait_for

pytestmark = pytest.mark.full
SEEN_WITHIN_S = 90
HEALED_WITHIN_S = 300
ETCD_AWAY_S = 60.0


def lose(fleet, pod):
    """Delete a pod and its volume's claim; the claim's name."""
    claim = f"data-{pod}"
    fleet.kubernetes.delete("pvc", claim, fleet.namespace, wait=False)
    fleet.kubernetes.delete("pod", pod, fleet.namespace)
    return claim


def wait_new(fleet, claim, old):
    """Until there is a claim of that name that is another one."""
    wait_for(f"a new {claim}", lambda: claims(fleet).get(claim) not in (old, None), SEEN_WITHIN_S)


def test_a_broker_that_loses_its_volume(fleet, rig, load, end):
    before = claims(fleet)
    victim = fleet.brokers()[0]["pod"]
    with rig.part("a broker's volume is lost"):
        claim = lose(fleet, victim)
        kill_operator(fleet)
        load.wait_served()
        wait_new(fleet, claim, before[claim])
        fleet.kubernetes.wait_pod(victim, fleet.namespace, HEALED_WITHIN_S)
        fleet.wait_ready()
    end("volume of a broker lost, operator killed")


def test_a_member_of_etcd_that_loses_its_volume(fleet, rig, load, end):
    before = claims(fleet)
    member = f"{fleet.name}-etcd-1"
    with rig.part("a member's volume is lost"):
        claim = lose(fleet, member)
        kill_operator(fleet)
        load.wait_served()
        wait_new(fleet, claim, before[claim])
        fleet.kubernetes.wait_pod(member, fleet.namespace, HEALED_WITHIN_S)
        fleet.wait_ready()
    end("volume of an etcd member lost")


def test_etcd_is_scaled_to_zero_and_back(fleet, rig, load, end):
    """Nobody is elected meanwhile, and nobody has to be: what is led goes on, and no broker has to register again."""
    etcd, members = f"statefulset/{fleet.name}-etcd", 3
    before = {pod["metadata"]["name"]: restarts(pod) for pod in fleet.broker_pods()}
    set_operator(fleet.kubernetes, running=False)
    try:
        with rig.part("etcd is away"):
            scale(fleet, etcd, 0)
            wait_for("etcd to be gone", lambda: not etcd_pods(fleet), SEEN_WITHIN_S)
            load.wait_served()
            away_until_s = time.monotonic() + ETCD_AWAY_S
            wait_for("its time", lambda: time.monotonic() > away_until_s, 2 * ETCD_AWAY_S)
            load.wait_served()
            scale(fleet, etcd, members)
            for number in range(members):
                pod = f"{fleet.name}-etcd-{number}"
                fleet.kubernetes.wait_pod(pod, fleet.namespace, HEALED_WITHIN_S)
    finally:
        set_operator(fleet.kubernetes, running=True)
    fleet.wait_ready()
    assert {pod["metadata"]["name"]: restarts(pod) for pod in fleet.broker_pods()} == before
    end("etcd scaled to 0 for a minute")


def scale(fleet, name, replicas):
    fleet.kubernetes.kubectl("scale", name, f"--replicas={replicas}", "-n", fleet.namespace)


def etcd_pods(fleet):
    names = (pod["metadata"]["name"] for pod in fleet.kubernetes.items("pod", fleet.namespace))
    return [name for name in names if name.startswith(f"{fleet.name}-etcd-")]


def restarts(pod):
    return sum(each["restartCount"] for each in pod["status"]["containerStatuses"])


def test_a_mistyped_zone_is_written_back(fleet, rig, load, end):
    """Three zones become two and one that no node has: the broker of the third is to go and has no place to go to."""
    before = claims(fleet)
    with rig.part("a zone is mistyped and written back"):
        change_cluster(fleet, zones=["a", "b", "x"])
        wait_for("the mistake to be told", lambda: not is_cluster_ready(fleet), SEEN_WITHIN_S)
        rig.say(f"why: {status(fleet)['why']}")
        kill_operator(fleet)
        load.wait_served()
        change_cluster(fleet, zones=["a", "b", "c"])
        fleet.wait_ready()
    assert sorted(held(fleet)) == sorted(each["id"] for each in fleet.brokers())
    after = claims(fleet)
    assert {name: after.get(name) for name in before} == before
    end("zone mistyped, written back")


def is_cluster_ready(fleet):
    found = fleet.resource()
    ready = condition(found, "Ready") or {}
    generation = found["metadata"]["generation"]
    return (ready.get("status"), ready.get("observedGeneration")) == ("True", generation)


def test_the_streaming_job_has_counted_every_record_once(rig, streamed):
    with rig.part("the streaming job's last records"):
        history, counted = streamed.end()
    assert history.failed == []
    assert counted == len(history.acknowledged) > 0
