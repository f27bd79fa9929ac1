"""Six brokers in three zones are replaced, drained and kept waiting, under producers, a group and a streaming Spark job.

Part of `make e2e-full`. The fleet gets six brokers for it, and three again in the end.
"""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from e2e.harness.images import image_name
from e2e.harness.kube.changes import (
    change_cluster,
    claims,
    drain_all,
    held,
    is_spread,
    kill_operator,
    leader_epochs,
    moves_of_leaders,
    renew,
    set_brokers,
    status,
    uids,
    zones_of,
)
from e2e.harness.kube.fleet import CLUSTERS, TOPICS, topic, wait_brokers
from e2e.harness.kube.kubernetes import condition, wait_for

pytestmark = pytest.mark.full
SCALED_WITHIN_S = 420
BEGUN_WITHIN_S = 120
ROLLED_WITHIN_S = 600
SLOW_S = 120.0
SLOW_RATE = 100_000
"""Bytes per second that a broker which is behind may copy."""
FILL_PER_S = 1_500_000
SIDES = ("leader", "follower")
BALLAST = "ballast"
IMAGE = f"docker.io/{image_name('broker')}"
RELEASE = f"{IMAGE}-another"


@pytest.fixture(scope="module", autouse=True)
def six(fleet, rig):
    with rig.part("six brokers"):
        set_brokers(fleet, 6)
        wait_for("six brokers to be wanted", lambda: status(fleet)["replicas"] == 6, 60)
        wait_brokers(fleet)
        wait_for("all replicas to be spread", lambda: is_spread(fleet), SCALED_WITHIN_S)
    yield
    with rig.part("three brokers again"):
        set_brokers(fleet, 3)
        wait_for("three pods", lambda: len(fleet.broker_pods()) == 3, SCALED_WITHIN_S)
        fleet.wait_ready()


def wait_begun(fleet, before):
    wait_for("the first to be replaced", lambda: before - uids(fleet), BEGUN_WITHIN_S)


def wait_rolled(fleet, before):
    wait_for("all to be replaced", lambda: not before & uids(fleet), ROLLED_WITHIN_S)
    fleet.wait_ready()


def test_six_brokers_are_replaced_zone_by_zone(fleet, rig, load, end):
    """A leader has to move once for each broker that has it and is replaced: 4/3 times on average, where it goes to those that were."""
    before, epochs = uids(fleet), leader_epochs(fleet)
    load.measure_calm()
    with rig.part("six brokers are replaced"):
        renew(fleet)
        wait_rolled(fleet, before)
    moves = moves_of_leaders(epochs, fleet)
    rig.say(f"leaders moved {statistics.mean(moves):.2f} times, at most {max(moves)}")
    assert statistics.mean(moves) < 2
    end("6 brokers rolled")


def test_a_zone_loses_its_power_during_a_roll(fleet, rig, load, end):
    before = uids(fleet)
    with rig.part("six brokers are replaced, a zone is away"):
        renew(fleet)
        wait_begun(fleet, before)
        rig.power_off("c")
        try:
            load.wait_served()
        finally:
            rig.power_on("c")
        wait_rolled(fleet, before)
    end("6 brokers rolled, power of a zone cut")


def test_another_image(fleet, rig, load, end):
    rig.tag_image(IMAGE, RELEASE)
    before = uids(fleet)
    load.measure_calm()
    with rig.part("another image"):
        change_cluster(fleet, image=RELEASE)
        wait_begun(fleet, before)
        kill_operator(fleet)
        wait_rolled(fleet, before)
    images = {pod["spec"]["containers"][0]["image"] for pod in fleet.broker_pods()}
    assert images == {RELEASE}
    end("image of 6 brokers changed, operator killed")


def test_nodes_of_two_brokers_are_drained(fleet, rig, load, end):
    """The budget lets the first of a node go, the operator the second (without one: test_replication, a broker per node)."""
    drain_all(fleet, rig)
    end("6 brokers, every node of two drained")


@pytest.fixture
def ballast(fleet):
    """A topic whose followers are slow to catch up."""
    wanted = topic(BALLAST, fleet.name, 6, replicas=3)
    wanted["spec"]["config"] = {f"{side}.replication.throttled.replicas": "*" for side in SIDES}
    fleet.kubernetes.apply(wanted, namespace=fleet.namespace)
    fleet.wait_topic(BALLAST)
    change_cluster(
        fleet, config={f"{side}.replication.throttled.rate": SLOW_RATE for side in SIDES}
    )
    fleet.wait_ready()
    yield
    change_cluster(fleet, config={f"{side}.replication.throttled.rate": None for side in SIDES})
    fleet.kubernetes.delete(TOPICS, BALLAST, fleet.namespace)


def fill(fleet, is_over):
    """Write to the ballast faster than a broker that is behind may copy."""
    producer = Producer({"bootstrap.servers": fleet.outside, "linger.ms": 100})
    sent, began_s = 0, time.monotonic()
    while not is_over.is_set():
        while sent < (time.monotonic() - began_s) * FILL_PER_S:
            producer.produce(BALLAST, b"x" * 10_000, partition=sent // 10_000 % 6)
            sent += 10_000
        producer.poll(0.05)
    assert producer.flush(60) == 0


@contextmanager
def filling(fleet):
    """While this lasts."""
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        filled = pool.submit(fill, fleet, is_over)
        try:
            yield
        finally:
            is_over.set()
    filled.result()


def relabel(fleet):
    """What a chart's next version does: the label with its version on all that belongs to the fleet."""
    ours = f"logfleet.dev/cluster={fleet.name}"
    for kind in ("statefulsets", "pods", "pvc", "services"):
        options = ("label", kind, "-l", ours, "--overwrite", "helm.sh/chart=cluster-9.9.9")
        fleet.kubernetes.kubectl(*options, namespace=fleet.namespace)
    another = ("label", CLUSTERS, fleet.name, "--overwrite", "team=other")
    fleet.kubernetes.kubectl(*another, namespace=fleet.namespace)


def test_brokers_that_need_minutes_to_catch_up_are_waited_for(fleet, rig, load, end, ballast):
    """Elsewhere the next broker was replaced while those before were still recovering, for 17 to 20 minutes each: six in eight minutes, and 25 minutes in which
    next to nothing was ingested (redpanda-operator, issue 1873; Strimzi, issues 3749 and 12649). And a label that changed in the middle of a roll had the
    mounted volumes of running brokers deleted (redpanda-operator, pull request 1866).
    """
    before, volumes = uids(fleet), claims(fleet)
    with filling(fleet):
        renew(fleet)
        wait_begun(fleet, before)
        (first,) = zones_of(fleet, before)
        relabel(fleet)
        with rig.part(f"zone {first} is behind"):
            until_s = time.monotonic() + SLOW_S
            while time.monotonic() < until_s:
                assert zones_of(fleet, before) == {first}
                time.sleep(1)
        behind = [pod for pod in fleet.broker_pods() if not is_pod_ready(pod)]
        rig.say(f"not ready after {SLOW_S:.0f} s: {[pod['metadata']['name'] for pod in behind]}")
        rig.say(f"why: {status(fleet)['why']}")
        assert behind
        load.wait_served()
    change_cluster(fleet, config={f"{side}.replication.throttled.rate": None for side in SIDES})
    with rig.part("the rest of the roll"):
        wait_rolled(fleet, before)
    assert claims(fleet) == volumes
    assert len(held(fleet)) == 6
    end("6 brokers rolled, slow to catch up")


def is_pod_ready(pod):
    return (condition(pod, "Ready") or {}).get("status") == "True"


def test_the_streaming_job_has_counted_every_record_once(rig, streamed):
    with rig.part("the streaming job's last records"):
        history, counted = streamed.end()
    assert history.failed == []
    assert counted == len(history.acknowledged) > 0
