"""All volumes of etcd are lost, and the metadata comes back from a snapshot that its CronJob took: the steps of docs/how-to/restoring-metadata.md.

Part of `make e2e-full`.
"""

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from e2e.harness.kube.changes import change_cluster, status
from e2e.harness.kube.fleet import TOPICS, set_operator, topic
from e2e.harness.kube.kubernetes import wait_for

pytestmark = pytest.mark.full
TAKEN_WITHIN_S = 180
"""The schedule's smallest step is a minute."""
WITHIN_S = 180
KEPT = "restored-kept"
PARTITIONS = 3
CLAIM = "backups"
COUNT = 300


@pytest.fixture
def backups(fleet):
    """A claim of its own, and a snapshot each minute."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "100Mi"}},
        },
    }
    fleet.kubernetes.apply(claim, namespace=fleet.namespace)
    snapshots = {"schedule": "* * * * *", "claimName": CLAIM, "keep": 5}
    change_cluster(fleet, metadata={"managed": {"snapshots": snapshots}})
    yield
    change_cluster(fleet, metadata={"managed": {"snapshots": None}})
    fleet.wait_ready()
    fleet.kubernetes.delete("pvc", CLAIM, fleet.namespace, wait=False)


def make(fleet, name):
    wanted = topic(name, fleet.name, PARTITIONS, replicas=3)
    fleet.kubernetes.apply(wanted, namespace=fleet.namespace)
    fleet.wait_topic(name)


def write(fleet, name):
    producer = Producer({"bootstrap.servers": fleet.outside, "acks": "all"})
    for number in range(COUNT):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0


def count(fleet, name):
    """Records that a consumer finds."""
    consumer = Consumer({"bootstrap.servers": fleet.outside, "group.id": "count"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(name, each), timeout=30)
            for each in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(end - begin for begin, end in ends)


def last_snapshot(fleet):
    return status(fleet).get("metadata", {}).get("lastSnapshot", "")


def scale(fleet, component, replicas):
    ours = f"logfleet.dev/cluster={fleet.name},app.kubernetes.io/component={component}"
    options = ("-l", ours, f"--replicas={replicas}")
    fleet.kubernetes.kubectl("scale", "statefulsets", *options, namespace=fleet.namespace)
    wait_for(
        f"{replicas} pods of {component}",
        lambda: len(fleet.kubernetes.pods(fleet.namespace, ours)) == replicas,
        WITHIN_S,
    )


def lose_etcd(fleet):
    """Its volumes, all of them; then members begin anew together."""
    scale(fleet, "etcd", 0)
    ours = f"logfleet.dev/cluster={fleet.name},app.kubernetes.io/component=etcd"
    fleet.kubernetes.kubectl("delete", "pvc", "-l", ours, namespace=fleet.namespace)
    anew = {"data": {"etcd": "bootstrapping", "etcd-initial-state": "new"}}
    patch = ("--type=merge", "-p", json.dumps(anew))
    record = f"{fleet.name}-record"
    fleet.kubernetes.kubectl("patch", "configmap", record, *patch, namespace=fleet.namespace)
    scale(fleet, "etcd", 3)
    for member in range(3):
        fleet.kubernetes.wait_pod(f"{fleet.name}-etcd-{member}", fleet.namespace, WITHIN_S)


def newest_snapshot(fleet):
    """Its path, as the pods of the CronJob have said it."""
    pods = fleet.kubernetes.pods(fleet.namespace, "batch.kubernetes.io/job-name")
    done = [each for each in pods if each["status"]["phase"] == "Succeeded"]
    done.sort(key=lambda each: each["status"]["startTime"])
    return fleet.kubernetes.logs(done[-1]["metadata"]["name"], fleet.namespace).split()[-1]


def restore(fleet, path):
    """By a pod as the CronJob makes them."""
    cron = fleet.kubernetes.get("cronjob", f"{fleet.name}-snapshots", fleet.namespace)
    spec = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    properties = container["command"][3]
    options = ["--override=node.id=0", f"--file={path}", "--execute"]
    container["command"] = ["logfleet", "metadata", "restore", properties, *options]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "restore"}, "spec": spec}
    fleet.kubernetes.apply(pod, namespace=fleet.namespace)
    try:
        return fleet.kubernetes.wait_ended("restore", fleet.namespace, WITHIN_S)
    finally:
        fleet.kubernetes.delete("pod", "restore", fleet.namespace)


def test_metadata_comes_back_from_a_scheduled_snapshot(fleet, rig, backups):
    make(fleet, KEPT)
    write(fleet, KEPT)
    with rig.part("a snapshot is taken"):
        before = last_snapshot(fleet)
        wait_for("a snapshot", lambda: last_snapshot(fleet) > before, TAKEN_WITHIN_S)
        taken = last_snapshot(fleet)
        wait_for("one that knows the topic", lambda: last_snapshot(fleet) > taken, TAKEN_WITHIN_S)
    path = newest_snapshot(fleet)
    write(fleet, KEPT)
    set_operator(fleet.kubernetes, running=False)
    try:
        with rig.part("all of etcd is lost"):
            scale(fleet, "broker", 0)
            lose_etcd(fleet)
        with rig.part("restored"):
            rig.say(restore(fleet, path).strip().replace("\n", " "))
    finally:
        set_operator(fleet.kubernetes, running=True)
    with rig.part("the fleet is back"):
        wait_for("all brokers", lambda: len(fleet.broker_pods()) == 3, WITHIN_S)
        fleet.wait_ready()
        fleet.wait_topic(KEPT)
    assert count(fleet, KEPT) == 2 * COUNT
    write(fleet, KEPT)
    assert count(fleet, KEPT) == 3 * COUNT
    fleet.kubernetes.delete(TOPICS, KEPT, fleet.namespace)
