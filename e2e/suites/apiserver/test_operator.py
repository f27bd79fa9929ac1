"""The operator under its chart's rights on a real API server: objects, ownership, rolls, topics, restarts, refusals."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from e2e.harness.kube.fleet import (
    CHARTS,
    CLUSTERS,
    OPERATOR_NAMESPACE,
    OPERATOR_RELEASE,
    TOPICS,
    example,
    topic,
)
from e2e.harness.kube.kubernetes import Kubernetes, wait_for
from e2e.harness.kube.stage import SOON_S, asked_inside, bring_up, granted, owned, small
from e2e.harness.operator_program import Operator

MANAGER = "logfleet-operator"
# An operator that was down asks twice, 30 s apart, before it believes that a Topic is gone.
DELETED_WITHIN_S = 120.0


def test_the_example_becomes_ready_and_owns_what_was_made_by_one_manager(stage, namespace):
    ready = bring_up(stage, namespace, example("cluster"))
    status = ready["status"]
    assert status["observedGeneration"] == ready["metadata"]["generation"]
    assert status["why"] == "all brokers are ready"
    assert [entry["zone"] for entry in status["brokers"]] == ["a", "b", "c"]
    inside, outside = (entry["bootstrap"] for entry in status["listeners"])
    assert inside == f"fleet-bootstrap.{namespace}.svc:9092"
    assert len(outside.split(",")) == 3
    objects = owned(stage.kubernetes, namespace)
    assert len(objects) > 15
    for live in objects:
        (owner,) = live["metadata"]["ownerReferences"]
        assert owner["uid"] == ready["metadata"]["uid"]
        assert owner["blockOwnerDeletion"]
        made_once = live["metadata"]["name"] == "fleet-etcd-ca"
        operation = "Update" if made_once else "Apply"
        for entry in live["metadata"]["managedFields"]:
            # what controllers say of an object is not ours
            assert (entry["manager"], entry["operation"]) == (MANAGER, operation) or entry.get(
                "subresource"
            ) == "status", live["metadata"]["name"]
    managers = {
        (entry["manager"], entry.get("subresource")) for entry in ready["metadata"]["managedFields"]
    }
    assert (MANAGER, "status") in managers
    assert (MANAGER, None) not in managers


def test_pods_are_restricted_spread_and_bounded(stage, namespace):
    bring_up(stage, namespace, small())
    for name in ("fleet-etcd", "fleet-main-a"):
        pod = stage.kubernetes.get("statefulset", name, namespace)["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["topologySpreadConstraints"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert pod["containers"][0][probe]
    spec = stage.kubernetes.get("statefulset", "fleet-main-a", namespace)["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    for name in ("fleet-brokers", "fleet-bootstrap", "fleet-external-0", "fleet-etcd"):
        service = stage.kubernetes.get("service", name, namespace)
        assert service["spec"]["publishNotReadyAddresses"] is True
    budget = stage.kubernetes.get("pdb", "fleet-brokers", namespace)["spec"]
    assert (budget["minAvailable"], "maxUnavailable" in budget) == (1, False)


def test_what_others_add_stays_and_what_they_change_is_put_back(stage, namespace):
    bring_up(stage, namespace, small())
    kubernetes = stage.kubernetes
    patch = {
        "metadata": {"annotations": {"example.com/mine": "yes"}},
        "spec": {"publishNotReadyAddresses": False},
    }
    kubernetes.kubectl(
        "patch", "service", "fleet-bootstrap", "-p", json.dumps(patch), namespace=namespace
    )

    def put_back() -> bool:
        found = kubernetes.get("service", "fleet-bootstrap", namespace)
        return found["spec"].get("publishNotReadyAddresses") is True

    wait_for("our field to be put back", put_back, SOON_S)
    found = kubernetes.get("service", "fleet-bootstrap", namespace)
    assert found["metadata"]["annotations"]["example.com/mine"] == "yes"


def test_what_is_deleted_comes_back_the_same(stage, namespace):
    bring_up(stage, namespace, small())
    kubernetes = stage.kubernetes
    before = kubernetes.get("service", "fleet-external-1000", namespace)
    for kind, name in (("service", "fleet-external-1000"), ("statefulset", "fleet-main-b")):
        uid = kubernetes.get(kind, name, namespace)["metadata"]["uid"]
        kubernetes.delete(kind, name, namespace, wait=False)

        def is_new(kind: str = kind, name: str = name, uid: str = uid) -> bool:
            return bool(kubernetes.get(kind, name, namespace)["metadata"]["uid"] != uid)

        wait_for(f"{name} to come back", is_new, SOON_S)
    after = kubernetes.get("service", "fleet-external-1000", namespace)
    assert after["spec"]["ports"] == before["spec"]["ports"]
    kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)


def uids(kubernetes: Kubernetes, namespace: str) -> dict[str, str]:
    selector = "app.kubernetes.io/component=broker"
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in kubernetes.pods(namespace, selector)
    }


def test_a_new_image_replaces_one_broker_at_a_time_and_the_budget_has_the_last_word(
    stage, namespace
):
    bring_up(stage, namespace, small())
    before = uids(stage.kubernetes, namespace)
    stage.kubelets.held = {"fleet-main-a-0"}
    try:
        stage.kubernetes.apply(small(image="logfleet/broker:2"), namespace=namespace)

        def waits_for_the_first() -> bool:
            found = stage.kubernetes.get(CLUSTERS, "fleet", namespace)
            there = uids(stage.kubernetes, namespace).get("fleet-main-a-0")
            is_gone = there != before["fleet-main-a-0"]  # it may not have been made again yet
            return is_gone and "will replace fleet-main-b-0 next" in found["status"]["why"]

        wait_for("the first to go, and the roll to wait", waits_for_the_first, SOON_S)
        during = uids(stage.kubernetes, namespace)
        assert during["fleet-main-b-0"] == before["fleet-main-b-0"]
        drain = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "fleet-main-b-0", "namespace": namespace},
        }
        eviction = f"/api/v1/namespaces/{namespace}/pods/fleet-main-b-0/eviction"
        with pytest.raises(Exception, match="disruption budget"):
            stage.kubernetes.kubectl(
                "create", "--raw", eviction, "-f", "-", stdin=json.dumps(drain)
            )
    finally:
        stage.kubelets.held = set()
    stage.kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)
    after = uids(stage.kubernetes, namespace)
    assert all(after[name] != uid for name, uid in before.items())
    said = [
        event["note"]
        for event in stage.kubernetes.items("events.events.k8s.io", namespace)
        if event["reason"] == "PodEvicted"
    ]
    assert sorted(said) == [f"{name} is out of date" for name in sorted(before)]


def test_kubectl_wait_works_in_every_state(stage, namespace):
    def waits_for(condition: str) -> None:
        arguments = ("wait", f"--for=condition={condition}", f"{CLUSTERS}/fleet", "--timeout=60s")
        assert "condition met" in stage.kubernetes.kubectl(*arguments, namespace=namespace)

    stage.kubernetes.apply(small(paused=True), namespace=namespace)
    waits_for("Paused")
    waits_for("Progressing=false")
    bring_up(stage, namespace, small())
    waits_for("Ready")
    waits_for("Paused=false")
    stage.kubernetes.apply(small(config={"num.partitions": "many"}), namespace=namespace)
    waits_for("Ready=false")
    waits_for("Progressing=false")
    (told,) = (
        event["note"]
        for event in stage.kubernetes.items("events.events.k8s.io", namespace)
        if event["type"] == "Warning" and event["regarding"]["kind"] == "Cluster"
    )
    assert "spec.config.num.partitions" in told


def test_fewer_brokers_go_once_they_have_nothing_and_their_volumes_say_so(stage, namespace):
    bring_up(stage, namespace, small())
    fewer = [{"name": "main", "replicas": 1, "storage": {"size": "1Gi"}}]
    bring_up(stage, namespace, small(pools=fewer))

    def has_gone() -> bool:
        claim = stage.kubernetes.get("pvc", "data-fleet-main-b-0", namespace)
        mark = claim["metadata"].get("annotations", {}).get("logfleet.dev/drain")
        return mark == "forgotten" and not exists("pod", "fleet-main-b-0")(
            stage.kubernetes, namespace
        )

    wait_for("the broker of zone b to have gone", has_gone, SOON_S)
    assert exists("pod", "fleet-main-a-0")(stage.kubernetes, namespace)
    bring_up(stage, namespace, small())
    claim = stage.kubernetes.get("pvc", "data-fleet-main-b-0", namespace)
    assert "logfleet.dev/drain" not in claim["metadata"].get("annotations", {})


def test_kubectl_scale_sets_the_brokers_of_the_only_pool(stage, namespace):
    bring_up(stage, namespace, small())
    stage.kubernetes.kubectl("scale", CLUSTERS, "fleet", "--replicas=3", namespace=namespace)

    def has_three() -> bool:
        found = stage.kubernetes.get(CLUSTERS, "fleet", namespace)["status"]
        return (found["replicas"], found["readyReplicas"]) == (3, 3)

    wait_for("three brokers", has_three, SOON_S)


def zones_of_etcd(kubernetes: Kubernetes, namespace: str) -> str:
    found = kubernetes.get("statefulset", "fleet-etcd", namespace)
    return json.dumps(found["spec"]["template"]["spec"]["affinity"])


def test_mistakes_that_never_ran_are_written_back(stage, namespace):
    """Thirty instead of three, and a zone that no node is in; with it etcd began."""
    for ordinal, zone in enumerate("ab"):
        node = {
            "name": f"node-of-fleet-etcd-{ordinal}",
            "labels": {"topology.kubernetes.io/zone": zone},
        }
        stage.kubernetes.apply({"apiVersion": "v1", "kind": "Node", "metadata": node})
    bring_up(stage, namespace, small(zones=["a", "b", "typo"]))
    before = {
        (live["kind"], live["metadata"]["name"]) for live in owned(stage.kubernetes, namespace)
    }
    there = set(uids(stage.kubernetes, namespace))
    stage.kubelets.homeless = lambda name: "etcd" not in name and name not in there
    pools = [{"name": "main", "replicas": 20, "storage": {"size": "1Gi"}}]
    pools.append({**pools[0], "name": "extra", "replicas": 1})
    try:
        stage.kubernetes.apply(small(zones=["a", "b", "typo"], pools=pools), namespace=namespace)
        wait_for("21 pods", lambda: len(uids(stage.kubernetes, namespace)) == 21, SOON_S)
        bring_up(stage, namespace, small())
    finally:
        stage.kubelets.homeless = lambda _: False
    assert set(uids(stage.kubernetes, namespace)) == there
    after = {
        (live["kind"], live["metadata"]["name"]) for live in owned(stage.kubernetes, namespace)
    }
    assert after == before
    volumes = {each["metadata"]["name"] for each in stage.kubernetes.items("pvc", namespace)}
    assert volumes == {"data-fleet-etcd-0", *(f"data-{name}" for name in there)}
    assert "typo" not in zones_of_etcd(stage.kubernetes, namespace)


def test_a_rebalance_is_proposed_approved_done_and_goes_by_itself(stage, namespace):
    """One broker has all there is: nothing is moved, and all the rest is as with more of them."""
    bring_up(stage, namespace, small())
    proposed, done = stage.rebalance(namespace)
    assert (proposed["phase"], proposed["proposal"]["moves"]) == ("Proposed", 0)
    assert done["phase"] == "Done"


def test_topics_are_made_grown_changed_adopted_refused_and_deleted(stage, namespace):
    bring_up(stage, namespace, small())
    kubernetes = stage.kubernetes
    kubernetes.apply(topic("orders", "fleet", 2), namespace=namespace)
    status = kubernetes.wait_condition(TOPICS, "orders", namespace, within_s=SOON_S)["status"]
    assert (status["partitions"], status["replicas"], bool(status["topicId"])) == (2, 1, True)
    wanted = topic("orders", "fleet", 4, config={"retention.ms": "1000"})
    kubernetes.apply(wanted, namespace=namespace)
    status = kubernetes.wait_condition(TOPICS, "orders", namespace, within_s=SOON_S)["status"]
    assert status["partitions"] == stage.topics()["orders"] == 4
    kubernetes.apply(topic("again", "fleet", 4, topicName="orders"), namespace=namespace)
    loser = stage.wait_reason(TOPICS, "again", namespace, "Conflict")
    assert "belongs to the older Topic orders" in loser["status"]["why"]
    kubernetes.apply(topic("copied", "fleet", 1, replicas=3), namespace=namespace)
    refused = stage.wait_reason(TOPICS, "copied", namespace, "Invalid")
    assert "INVALID_REPLICATION_FACTOR" in refused["status"]["why"]
    assert "copied" not in stage.topics()
    kubernetes.delete(TOPICS, "again", namespace)
    kubernetes.delete(TOPICS, "orders", namespace)
    wait_for("the topic to go", lambda: "orders" not in stage.topics(), SOON_S)


def test_a_hundred_topics_deleted_at_once_go(stage, namespace):
    bring_up(stage, namespace, small())
    names = [f"many-{number}" for number in range(100)]
    items = [topic(name, "fleet") for name in names]
    stage.kubernetes.apply(
        {"apiVersion": "v1", "kind": "List", "items": items}, namespace=namespace
    )
    wait_for("all topics", lambda: set(names) <= stage.topics().keys(), SOON_S)
    stage.kubernetes.kubectl("delete", TOPICS, "--all", "--wait=false", namespace=namespace)
    wait_for("all topics to go", lambda: not set(names) & stage.topics().keys(), SOON_S)


def test_a_topic_deleted_while_no_operator_ran_goes_and_a_retained_one_stays(stage, namespace):
    bring_up(stage, namespace, small())
    kubernetes = stage.kubernetes
    for name, policy in (("forgotten", "Delete"), ("retained", "Retain"), ("wanted", "Delete")):
        kubernetes.apply(topic(name, "fleet", deletionPolicy=policy), namespace=namespace)
    for name in ("forgotten", "retained", "wanted"):
        kubernetes.wait_condition(TOPICS, name, namespace, within_s=SOON_S)
    stage.operator.kill()
    for name in ("forgotten", "retained"):
        kubernetes.delete(TOPICS, name, namespace)
    assert stage.topics().keys() >= {"forgotten", "retained", "wanted"}
    stage.operator.start()
    wait_for("the topic to go", lambda: "forgotten" not in stage.topics(), DELETED_WITHIN_S)
    assert stage.topics().keys() >= {"retained", "wanted"}


def test_a_namespace_goes_although_the_operator_is_gone(stage, namespace):
    bring_up(stage, namespace, small())
    stage.kubernetes.apply(topic("passenger", "fleet"), namespace=namespace)
    stage.kubernetes.wait_condition(TOPICS, "passenger", namespace, within_s=SOON_S)
    stage.operator.kill()
    stage.kubernetes.kubectl("delete", "namespace", namespace, "--timeout=60s")
    assert not stage.kubernetes.exists("namespace", namespace)
    assert "passenger" in stage.topics()


def test_a_clusters_end_takes_all_it_owns_but_the_volumes(stage, namespace):
    bring_up(stage, namespace, small())
    assert owned(stage.kubernetes, namespace)
    stage.kubernetes.delete(CLUSTERS, "fleet", namespace)
    wait_for("the end", lambda: not owned(stage.kubernetes, namespace), SOON_S)
    volumes = {each["metadata"]["name"] for each in stage.kubernetes.items("pvc", namespace)}
    assert volumes == {"data-fleet-etcd-0", "data-fleet-main-a-0", "data-fleet-main-b-0"}


def exists(kind: str, name: str) -> Callable[[Kubernetes, str], bool]:
    return lambda kubernetes, namespace: kubernetes.exists(kind, name, namespace)


MOMENTS = {
    "record": exists("configmap", "fleet-record"),
    "first-service": exists("service", "fleet-brokers"),
    "authority": exists("secret", "fleet-etcd-ca"),
    "etcd": exists("statefulset", "fleet-etcd"),
    "brokers": exists("statefulset", "fleet-main-a"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_it_goes_on_where_it_was(stage, namespace, moment):
    stage.kubernetes.apply(small(), namespace=namespace)
    wait_for(moment, lambda: MOMENTS[moment](stage.kubernetes, namespace), SOON_S)
    stage.operator.kill()
    before = {
        (live["kind"], live["metadata"]["name"]): live["metadata"]["uid"]
        for live in owned(stage.kubernetes, namespace)
    }
    stage.operator.start()
    stage.kubernetes.wait_condition(CLUSTERS, "fleet", namespace, within_s=SOON_S)
    after = {
        (live["kind"], live["metadata"]["name"]): live["metadata"]["uid"]
        for live in owned(stage.kubernetes, namespace)
    }
    assert after.items() >= before.items()
    record = stage.kubernetes.get("configmap", "fleet-record", namespace)
    assert record["data"]["etcd"] == "established"


def test_it_speaks_json_and_exports_metrics(stage):
    wait_for("metrics", lambda: stage.operator.fetch("/metrics"), SOON_S)
    text = stage.operator.fetch("/metrics")
    for name in ("queue_depth", "queue_overdue_seconds", "reconciles_total", "reconcile_seconds"):
        assert f"logfleet_operator_{name}" in text
    assert stage.operator.fetch("/healthz") == "ok\n"
    events = stage.operator.events()
    assert "operator_started" in [event["event"] for event in events]
    assert {"level", "timestamp", "event"} <= set(events[0])


def test_every_right_is_used_and_none_is_missing(stage, namespace):
    """After all the other tests: what they did is in the audit log."""
    bring_up(stage, namespace, stage.with_snapshots())
    assert stage.kubernetes.exists("cronjob", "fleet-snapshots", namespace)
    stage.kubelets.broken_images = {"broken"}
    try:
        stage.kubernetes.apply(small(image="broken"), namespace=namespace)

        def is_stuck() -> bool:
            found = stage.kubernetes.get(CLUSTERS, "fleet", namespace)
            return "ImagePullBackOff" in found["status"]["why"]

        wait_for("a stuck broker", is_stuck, SOON_S)
        (inside, _) = small()["spec"]["listeners"]
        bring_up(stage, namespace, small(listeners=[inside]))
    finally:
        stage.kubelets.broken_images = set()
    used = stage.plane.rights_used(OPERATOR_RELEASE, OPERATOR_NAMESPACE)
    assert [right for right, decisions in used.items() if decisions != {"allow"}] == []
    assert set(used) | asked_inside(set(used)) == granted(stage.kubernetes)


def test_with_named_namespaces_it_works_there_and_nowhere_else(stage, namespace, tmp_path: Path):
    stage.operator.kill()
    kubernetes, system = stage.kubernetes, "narrow-system"
    install = ("upgrade", "--install", OPERATOR_RELEASE, str(CHARTS / "operator"), "-n", system)
    values = {"watchNamespaces": [namespace], "crds": {"enabled": False}}
    kubernetes.helm(*install, "--create-namespace", "-f", "-", values=values)
    token = stage.plane.kubeconfig_of(OPERATOR_RELEASE, system)
    narrow = Operator(tmp_path, token, stage.broker, namespace)
    elsewhere = f"not-{namespace}"[:60]
    kubernetes.create_namespace(elsewhere)
    kubernetes.apply(small(), namespace=elsewhere)
    try:
        narrow.start()
        bring_up(stage, namespace, small())
        kubernetes.apply(topic("narrow", "fleet"), namespace=namespace)
        kubernetes.wait_condition(TOPICS, "narrow", namespace, within_s=SOON_S)
    finally:
        narrow.close()
        kubernetes.helm("uninstall", OPERATOR_RELEASE, "-n", system)
    assert "status" not in kubernetes.get(CLUSTERS, "fleet", elsewhere)
    kubernetes.delete("namespace", elsewhere, wait=False)
    used = stage.plane.rights_used(OPERATOR_RELEASE, system)
    assert [right for right, decisions in used.items() if decisions != {"allow"}] == []


def test_a_kubeconfig_that_is_not_there_is_one_line(stage, tmp_path: Path):
    operator = Operator(tmp_path, tmp_path / "none", stage.broker)
    try:
        operator.launch()
        assert operator.wait() == 1
        (line,) = operator.said().splitlines()
        assert line.startswith("logfleet-operator: the kubeconfig cannot be used: ")
    finally:
        operator.close()


def test_at_rest_it_looks_and_writes_nothing(stage, namespace):
    bring_up(stage, namespace, small())

    def asked(*verbs: str) -> list[str]:
        return [
            f"{event['verb']} {event['objectRef']['resource']} {event['objectRef'].get('name')}"
            for event in stage.plane.audit()
            if event.get("objectRef", {}).get("namespace") == namespace and event["verb"] in verbs
        ]

    def looks() -> int:
        return asked("get").count("get clusters fleet")

    def more_than(before: int) -> bool:
        return looks() > before

    def look(number: int) -> None:
        """Make it look at everything twice, so that it has done with the first when the second begins."""
        for half in ("a", "b"):
            before = looks()
            note = ("annotate", CLUSTERS, "fleet", f"example.com/look={number}{half}")
            stage.kubernetes.kubectl(*note, "--overwrite", namespace=namespace)
            wait_for("a look", partial(more_than, before), SOON_S)

    look(1)
    written = asked("patch", "create", "delete")
    look(2)
    assert asked("patch", "create", "delete") == written
