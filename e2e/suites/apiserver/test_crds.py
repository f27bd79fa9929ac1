"""The CRDs on a real API server: what it takes, what it refuses and with which sentence, what it shows."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from logfleet.resources.cluster import parse_cluster
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.rebalance import parse_rebalance
from logfleet.resources.topic import parse_topic

from e2e.harness.images import ROOT
from e2e.harness.kube.fleet import CLUSTERS, EXAMPLES, REBALANCES, TOPICS, example
from e2e.harness.kube.kubernetes import Kubernetes, Object, condition, wait_for

CRDS = sorted((ROOT / "crds").glob("*.yaml"))
NAMESPACE = "schemas"
KINDS = (CLUSTERS, TOPICS, REBALANCES)
SHORT = {"cluster": "lfc", "topic": "lft", "rebalance": "lfr"}
PARSERS = {"Cluster": parse_cluster, "Topic": parse_topic, "Rebalance": parse_rebalance}

INTERNAL = {"name": "internal", "port": 9092, "type": "internal"}
OUTSIDE = {"name": "external", "port": 9094, "type": "nodeport"}
POOL: dict[str, Any] = {"name": "main", "replicas": 3, "storage": {"size": "2Gi"}}
MANAGED = {"managed": {"replicas": 3, "storage": {"size": "1Gi"}}}


def pools(**fields: Any) -> dict[str, Any]:
    return {"pools": [{**POOL, **fields}]}


def resource(kind: str, spec: dict[str, Any], name: str = "") -> Object:
    """The committed example with other fields; None takes a field away."""
    document = copy.deepcopy(example(kind))
    changed = {**document["spec"], **spec}
    document["spec"] = {key: value for key, value in changed.items() if value is not None}
    document["metadata"]["name"] = name or f"a-{kind}"
    return document


@pytest.fixture(scope="module")
def server(kubernetes: Kubernetes) -> Kubernetes:
    """With our CRDs and a namespace."""
    kubernetes.apply(*CRDS)
    for crd in KINDS:
        kubernetes.wait_condition("crd", crd, is_now="Established", within_s=30)
    kubernetes.create_namespace(NAMESPACE)
    return kubernetes


@pytest.fixture
def scratch(server: Kubernetes) -> Iterator[Kubernetes]:
    yield server
    for kind in KINDS:
        server.kubectl("delete", kind, "--all", namespace=NAMESPACE)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("cluster", {"zones": ["a", "a"]}, "Duplicate value"),
    ("cluster", {"zones": ["a b"]}, "spec.zones[0]"),
    ("cluster", pools(zones=["nowhere"]), "a pool's zones must be among spec.zones"),
    ("cluster", pools(zones=[]), "spec.pools[0].zones"),
    ("cluster", {"pools": []}, "spec.pools"),
    ("cluster", {"pools": [POOL, POOL]}, "Duplicate value"),
    ("cluster", pools(name="Main"), "spec.pools[0].name"),
    ("cluster", pools(name="etcd"), "this name is reserved, choose another one"),
    ("cluster", pools(replicas=0), "spec.pools[0].replicas"),
    ("cluster", pools(storage={"size": "0"}), "write a positive quantity, for example 10Gi"),
    ("cluster", pools(storage={"size": "much"}), "spec.pools[0].storage.size"),
    ("cluster", pools(resources={"limits": {"memory": "much"}}), "spec.pools[0].resources"),
    (
        "cluster",
        {"pools": [POOL], "zones": ["z" * 45]},
        "CLUSTER-POOL-ZONE must fit in 48 characters: shorten one of the names",
    ),
    (
        "cluster",
        {"pools": [POOL, {**POOL, "name": "more"}], "replicas": 3},
        "spec.replicas is for a Cluster of one pool, write the replicas of each pool instead",
    ),
    (
        "cluster",
        {"pools": [{"name": "main", "storage": {"size": "2Gi"}}]},
        "write the replicas of each pool, or of the only one in spec.replicas",
    ),
    ("cluster", {"config": {"node.id": 3}}, "follow from the rest of the spec, leave them out"),
    ("cluster", {"config": {"logfleet.x": 3}}, "follow from the rest of the spec, leave them out"),
    ("cluster", {"listeners": [OUTSIDE]}, "exactly one listener of type internal is needed"),
    (
        "cluster",
        {"listeners": [INTERNAL, {**OUTSIDE, "port": 9092}]},
        "two listeners cannot share a port",
    ),
    (
        "cluster",
        {"listeners": [{**INTERNAL, "advertisedHost": "example.com"}]},
        "is for listeners of type nodeport only, leave it out",
    ),
    (
        "cluster",
        {"listeners": [{**INTERNAL, "port": 9644}]},
        "9644 serves health and metrics, choose another port",
    ),
    ("cluster", {"listeners": [{**INTERNAL, "name": "In"}]}, "spec.listeners[0].name"),
    (
        "cluster",
        {"listeners": [INTERNAL, {**OUTSIDE, "name": "admin"}]},
        "this name is reserved, choose another one",
    ),
    ("cluster", {"metadata": {}}, "write exactly one of managed and endpoints"),
    (
        "cluster",
        {"metadata": {**MANAGED, "endpoints": ["etcd:2379"]}},
        "write exactly one of managed and endpoints",
    ),
    ("cluster", {"metadata": {"managed": {"replicas": 2}}}, "spec.metadata.managed.replicas"),
    (
        "cluster",
        {
            "metadata": {
                "managed": {"replicas": 3, "snapshots": {"schedule": "x", "claimName": "b"}}
            }
        },
        "spec.metadata.managed.snapshots.schedule",
    ),
    ("cluster", {"metadata": {"endpoints": ["http://x"]}}, "spec.metadata.endpoints[0]"),
    ("cluster", {"version": "v 2"}, "spec.version"),
    ("cluster", {"featureLevel": 0}, "spec.featureLevel"),
    ("topic", {"partitions": 0}, "spec.partitions"),
    ("topic", {"partitions": "many"}, "spec.partitions"),
    ("topic", {"replicas": 0}, "spec.replicas"),
    ("topic", {"topicName": "no spaces"}, "spec.topicName"),
    ("topic", {"topicName": ".."}, "this is no topic name, use letters, digits, '.', '_' and '-'"),
    (
        "topic",
        {"topicName": "__consumer_offsets"},
        "this topic belongs to the brokers themselves, choose another name",
    ),
    ("topic", {"clusterRef": None}, "spec.clusterRef"),
    ("topic", {"deletionPolicy": "Maybe"}, "spec.deletionPolicy"),
    ("topic", {"config": {"retention.ms": 1.5}}, "spec.config.retention.ms"),
    ("rebalance", {"clusterRef": None}, "spec.clusterRef"),
    ("rebalance", {"approval": "Later"}, "spec.approval"),
    ("rebalance", {"movesPerBroker": 0}, "spec.movesPerBroker"),
    ("rebalance", {"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
]
WRONG_CHANGES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "cluster",
        {},
        {"metadata": {"endpoints": ["etcd:2379"]}},
        "the brokers' metadata cannot move between a managed etcd and one outside",
    ),
    (
        "cluster",
        {},
        {"metadata": {"managed": {"replicas": 1, "storage": {"size": "1Gi"}}}},
        "this version cannot change the number of members, write the former one",
    ),
    (
        "cluster",
        {},
        {"metadata": {"managed": {"replicas": 3, "storage": {"size": "9Gi"}}}},
        "this version cannot change the volumes of the metadata store, write what they had",
    ),
    (
        "topic",
        {},
        {"partitions": 5},
        (
            "partitions only grow (fewer would lose records), write the former number or more; "
            "if the topic itself has fewer (status.partitions), set deletionPolicy to Retain, delete the Topic and make "
            "it again, then the topic stays with its records"
        ),
    ),
    (
        "topic",
        {},
        {"topicName": "other"},
        "the topic's name cannot change; make another Topic and copy the records",
    ),
    (
        "topic",
        {"topicName": "other"},
        {"topicName": None},
        "the topic's name cannot change; make another Topic and copy the records",
    ),
    (
        "topic",
        {},
        {"clusterRef": {"name": "other"}},
        "a topic stays in its Cluster; make another Topic and copy the records",
    ),
    (
        "rebalance",
        {},
        {"clusterRef": {"name": "other"}},
        "a Rebalance stays with its Cluster; make another one",
    ),
    (
        "rebalance",
        {"stop": True},
        {"stop": False},
        "what was stopped does not go on; make another Rebalance",
    ),
    (
        "rebalance",
        {"approved": True},
        {"approved": False},
        "an approval is not taken back; to end it set stop to true",
    ),
]
GIVEN: dict[str, Any] = {"pools": [{"name": "main", "size": "2Gi"}], "featureLevel": 2}
"""The status of a Cluster with volumes, at a feature level."""
FAST = {"size": "2Gi", "class": "fast"}
OF_FAST: dict[str, Any] = {"pools": [{"name": "main", **FAST}]}
ONE = pools(storage={"size": "1Gi"})
MANY = pools(storage={"size": "20Ti"})
OTHER_CLASS = "a volume's storage class cannot change; add a pool with the other class"
LEVEL = "a feature level is never lowered, write that of the brokers (status.featureLevel) or more"
WRONG_BESIDE_STATUS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    (GIVEN, MANY, ONE, "volumes only grow, write what they have (status.pools) or more"),
    (GIVEN, {}, pools(storage=FAST), OTHER_CLASS),
    (OF_FAST, pools(storage=FAST), pools(), OTHER_CLASS),
    (GIVEN, {"featureLevel": 20}, {"featureLevel": 1}, LEVEL),
]
GOOD_BESIDE_STATUS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (GIVEN, MANY, pools(storage={"size": "2048Mi"})),
    (GIVEN, {"featureLevel": 20}, {"featureLevel": 2}),
    (GIVEN, {"featureLevel": 20}, {"featureLevel": None}),
    # Nothing is there yet: a mistake is written back.
    ({"pools": []}, MANY, ONE),
    ({}, pools(storage={"size": "2Gi", "class": "fsat"}), pools(storage=FAST)),
    # What was made again over larger volumes, or at a higher level, changes in all else.
    (GIVEN, ONE, {**pools(storage={"size": "1Gi"}, replicas=4), "image": "x"}),
    (GIVEN, {"featureLevel": 1}, {"featureLevel": 1, "image": "x"}),
    (GIVEN, pools(storage=FAST), {**pools(storage=FAST), "image": "x"}),
]
LONG_NAME = "a topic's name has at most 249 characters, write a shorter one"
GOOD_CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("cluster", pools(replicas=6)),
    ("cluster", pools(storage={"size": "2048Mi"})),
    ("cluster", pools(storage={"size": "3Gi"})),
    ("cluster", {"pools": [{"name": "main", "storage": {"size": "2Gi"}}], "replicas": 5}),
    ("cluster", {"pools": [POOL, {**POOL, "name": "more", "storage": {"size": "9Gi"}}]}),
    ("cluster", {"zones": ["a", "b", "c", "d"]}),
    ("cluster", {"config": {"log.retention.ms": 1}, "image": "x", "paused": True}),
    ("cluster", {"listeners": [INTERNAL]}),
    ("cluster", {"version": "0.2.0", "featureLevel": 2}),
    ("topic", {"partitions": 7}),
    ("topic", {"config": {"retention.ms": -1, "cleanup.policy": "compact"}}),
    ("topic", {"topicName": "a-topic"}),
    ("topic", {"deletionPolicy": "Retain"}),
    ("rebalance", {"approved": True, "throttle": "20Mi"}),
    ("rebalance", {"stop": True}),
]


def refusal(server: Kubernetes, document: Object) -> str:
    return " ".join(server.refusal(document, NAMESPACE).split())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_taken(server: Kubernetes, path):
    said = server.kubectl("apply", "--dry-run=server", "-f", str(path), namespace=NAMESPACE)
    assert "created" in said


@pytest.mark.parametrize("kind, spec, sentence", WRONG)
def test_a_wrong_resource_is_refused_with_a_sentence_and_by_us_too(server, kind, spec, sentence):
    wrong = resource(kind, spec)
    assert sentence in refusal(server, wrong)
    assert not server.exists(f"{kind}s.logfleet.dev", wrong["metadata"]["name"], NAMESPACE)
    with pytest.raises(InvalidResourceError):
        PARSERS[wrong["kind"]](wrong)


def test_a_name_that_is_too_long_for_a_topic_asks_for_another(server):
    wrong = resource("topic", {}, name="x" * 250)
    assert LONG_NAME in refusal(server, wrong)


@pytest.mark.parametrize("kind, before, after, sentence", WRONG_CHANGES)
def test_a_change_that_cannot_be_undone_is_refused_with_a_sentence(
    scratch, kind, before, after, sentence
):
    scratch.apply(resource(kind, before), namespace=NAMESPACE)
    assert sentence in refusal(scratch, resource(kind, after))


def in_fact(server: Kubernetes, status: dict[str, Any]) -> None:
    """Write the Cluster's status; rules that look at it never keep the operator from that."""
    patch = ("patch", CLUSTERS, "a-cluster", "--subresource=status", "--type=merge")
    server.kubectl(*patch, "-p", json.dumps({"status": status}), namespace=NAMESPACE)


@pytest.mark.parametrize("status, before, after, sentence", WRONG_BESIDE_STATUS)
def test_what_contradicts_what_there_is_is_refused_with_a_sentence(
    scratch, status, before, after, sentence
):
    scratch.apply(resource("cluster", before), namespace=NAMESPACE)
    in_fact(scratch, status)
    assert sentence in refusal(scratch, resource("cluster", after))


@pytest.mark.parametrize("status, before, after", GOOD_BESIDE_STATUS)
def test_what_never_came_true_can_be_written_back(scratch, status, before, after):
    scratch.apply(resource("cluster", before), namespace=NAMESPACE)
    in_fact(scratch, status)
    assert "configured" in scratch.apply(resource("cluster", after), namespace=NAMESPACE)
    in_fact(scratch, {**status, "why": "because"})


@pytest.mark.parametrize("kind, after", GOOD_CHANGES)
def test_a_change_that_can_be_made_is_taken(scratch, kind, after):
    scratch.apply(resource(kind, {}), namespace=NAMESPACE)
    assert "configured" in scratch.apply(resource(kind, after), namespace=NAMESPACE)


def sentences(schema: Any) -> Iterator[str]:
    """Every message of a CEL rule."""
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations", ()):
            yield rule["message"]
        for value in schema.values():
            yield from sentences(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from sentences(value)


def test_every_rule_is_shown_to_refuse_something():
    shown = [said for *_, said in WRONG] + [said for *_, said in WRONG_CHANGES] + [LONG_NAME]
    shown += [said for *_, said in WRONG_BESIDE_STATUS]
    for path in CRDS:
        for sentence in sentences(yaml.safe_load(path.read_text())):
            assert any(part in sentence for part in shown), sentence


@pytest.mark.parametrize("kind", ["cluster", "topic", "rebalance"])
def test_an_unknown_field_is_refused_by_kubectl_and_never_stored(scratch, kind):
    wrong = resource(kind, {"colour": "green"})
    assert 'unknown field "spec.colour"' in refusal(scratch, wrong)
    text = json.dumps(wrong)
    scratch.kubectl("apply", "--validate=ignore", "-f", "-", namespace=NAMESPACE, stdin=text)
    stored = scratch.get(f"{kind}s.logfleet.dev", f"a-{kind}", NAMESPACE)
    assert "colour" not in stored["spec"]


STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "why": "because",
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Progressing",
            "message": "because",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
}
OTHERS = [
    {**STATUS["conditions"][0], "type": kind, "status": status, "reason": reason}
    for kind, status, reason in (
        ("Progressing", "True", "Waiting"),
        ("Degraded", "True", "OfflinePartitions"),
        ("TopicDeletionBlocked", "False", "NotBlocked"),
    )
]
BOOTSTRAP = [{"name": "i", "type": "internal", "bootstrap": "fleet:9092"}]


@pytest.mark.parametrize(
    "kind, status, narrow, wide",
    [
        (
            "cluster",
            {
                **STATUS,
                "conditions": [*STATUS["conditions"], *OTHERS],
                "partitions": {"offline": 1, "underReplicated": 2},
                "replicas": 3,
                "readyReplicas": 2,
                "listeners": BOOTSTRAP,
            },
            {
                "BROKERS": "2",
                "OF": "3",
                "READY": "False",
                "REASON": "Progressing",
                "DEGRADED": "True",
                "PROGRESSING": "Waiting",
            },
            {
                "OFFLINE": "1",
                "UNDERREPLICATED": "2",
                "DELETIONS": "NotBlocked",
                "BOOTSTRAP": "fleet:9092",
                "WHY": "because",
            },
        ),
        (
            "topic",
            {**STATUS, "topicName": "t", "partitions": 6, "replicas": 1},
            {"CLUSTER": "fleet", "PARTITIONS": "6", "REPLICAS": "1", "READY": "False"},
            {"TOPIC": "t", "WHY": "because"},
        ),
        (
            "rebalance",
            {
                **STATUS,
                "phase": "Running",
                "proposal": {"moves": 7, "bytes": 9},
                "progress": {"bytesLeft": 5, "minutesLeft": 2},
            },
            {
                "CLUSTER": "fleet",
                "PHASE": "Running",
                "MOVES": "7",
                "BYTESLEFT": "5",
                "MINUTESLEFT": "2",
                "READY": "False",
            },
            {"BYTES": "9", "WHY": "because"},
        ),
    ],
)
def test_kubectl_get_shows_what_matters_by_every_name(scratch, kind, status, narrow, wide):
    scratch.apply(resource(kind, {}), namespace=NAMESPACE)
    patch = ("patch", f"{kind}s.logfleet.dev", f"a-{kind}", "--subresource=status", "--type=merge")
    scratch.kubectl(*patch, "-p", json.dumps({"status": status}), namespace=NAMESPACE)
    for name in (f"{kind}s.logfleet.dev", SHORT[kind], "logfleet"):
        assert shown(scratch.kubectl("get", name, namespace=NAMESPACE)).items() >= narrow.items()
    said = shown(scratch.kubectl("get", SHORT[kind], "-o", "wide", namespace=NAMESPACE))
    assert said.items() >= {**narrow, **wide}.items()
    assert list(said)[-1] == "AGE"


def shown(table: str) -> dict[str, str]:
    """Column -> value of the only row."""
    head, row = table.splitlines()
    return dict(zip(head.split(), row.split(), strict=True))


@pytest.mark.parametrize("kind", ["cluster", "topic"])
def test_status_and_spec_are_written_apart(scratch, kind):
    plural, name = f"{kind}s.logfleet.dev", f"a-{kind}"
    scratch.apply({**resource(kind, {}), "status": STATUS}, namespace=NAMESPACE)
    assert "status" not in scratch.get(plural, name, NAMESPACE)
    patch = ("patch", plural, name, "--subresource=status", "--type=merge")
    both = {"status": STATUS, "spec": {"paused": True, "deletionPolicy": "Retain"}}
    scratch.kubectl(*patch, "-p", json.dumps(both), namespace=NAMESPACE)
    found = scratch.get(plural, name, NAMESPACE)
    assert found["status"]["why"] == "because"
    assert found["metadata"]["generation"] == 1
    assert found["spec"].get("paused", False) is False
    assert found["spec"].get("deletionPolicy", "Delete") == "Delete"


def test_wait_for_ready_works_from_the_first_status_on(scratch):
    scratch.apply(resource("topic", {}), namespace=NAMESPACE)
    ready = [{**STATUS["conditions"][0], "status": "True"}]
    patch = ("patch", TOPICS, "a-topic", "--subresource=status", "--type=merge")
    scratch.kubectl(
        *patch, "-p", json.dumps({"status": {"conditions": ready}}), namespace=NAMESPACE
    )
    wait = ("wait", "--for=condition=Ready", "--timeout=10s", f"{TOPICS}/a-topic")
    assert "condition met" in scratch.kubectl(*wait, namespace=NAMESPACE)


@pytest.mark.parametrize("crd", KINDS)
def test_the_api_server_has_nothing_to_object_about_the_schema(server, crd):
    found = wait_for("the verdict", lambda: server.get("crd", crd), 10)
    objection = condition(found, "NonStructuralSchema")
    assert objection is None
    assert (condition(found, "NamesAccepted") or {})["status"] == "True"


@pytest.mark.parametrize("field", ["clusters.spec.pools.storage.size", "topics.spec.partitions"])
def test_kubectl_explains_the_fields(server, field):
    plural, _, path = field.partition(".")
    said = server.kubectl("explain", f"{plural}.{path}", "--api-version=logfleet.dev/v1beta1")
    assert "FIELD:" in said
