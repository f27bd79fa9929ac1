"""Topics as resources: made, grown, refused, in conflict, deleted with the operator up and down."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported by name only
    AdminClient,
    ConfigResource,
    ResourceType,
)

from e2e.harness.kube.fleet import TOPICS, Fleet, example, set_operator, topic
from e2e.harness.kube.kubernetes import condition, wait_for

# An operator that was down asks twice, 30 s apart, before it believes that a Topic is gone.
DELETED_WITHIN_S = 180
# A Topic is Ready by the word of one broker; a client may ask another, which hears of it a moment later.
HEARD_WITHIN_S = 60


def names(fleet: Fleet) -> set[str]:
    return set(AdminClient({"bootstrap.servers": fleet.outside}).list_topics(timeout=20).topics)


def wait_named(fleet: Fleet, name: str) -> None:
    wait_for(f"{name} to be heard of", lambda: name in names(fleet), HEARD_WITHIN_S)


def wait_partitions(fleet: Fleet, name: str, count: int) -> None:
    """Return when clients see so many."""

    def probe() -> bool:
        topics = AdminClient({"bootstrap.servers": fleet.outside}).list_topics(timeout=20).topics
        return name in topics and len(topics[name].partitions) == count

    wait_for(f"{name} to have {count} partitions", probe, HEARD_WITHIN_S)


def wait_config(fleet: Fleet, name: str, key: str, value: str) -> None:
    """Return when clients see this value. Raises KafkaException with the broker's words if it is not told."""
    resource = ConfigResource(ResourceType.TOPIC, name)

    def probe() -> bool:
        admin = AdminClient({"bootstrap.servers": fleet.outside})
        try:
            entries = admin.describe_configs([resource])[resource].result(timeout=20)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return bool(entries[key].value == value)

    wait_for(f"{name} to have {key}={value}", probe, HEARD_WITHIN_S)


@pytest.fixture
def make(fleet):
    """Applies Topics of the example Cluster; they are deleted afterwards."""
    made: list[str] = []

    def apply(name: str, partitions: int = 1, **spec: object) -> None:
        made.append(name)
        wanted = topic(name, fleet.name, partitions, **spec)
        fleet.kubernetes.apply(wanted, namespace=fleet.namespace)

    yield apply
    for name in made:
        fleet.kubernetes.delete(TOPICS, name, fleet.namespace)


def test_a_topic_becomes_what_clients_see(fleet, make):
    make("orders", 3, config={"retention.ms": "3600000"})
    status = fleet.wait_topic("orders")["status"]
    assert status["partitions"] == 3
    wait_partitions(fleet, "orders", 3)
    assert status["replicas"] == 1
    assert status["topicId"]
    wait_config(fleet, "orders", "retention.ms", "3600000")


def test_a_topic_grows_and_changes_its_configuration(fleet, make):
    make("growing", 2)
    identity = fleet.wait_topic("growing")["status"]["topicId"]
    make("growing", 4, config={"cleanup.policy": "compact"})
    status = fleet.wait_topic("growing")["status"]
    assert status["partitions"] == 4
    wait_partitions(fleet, "growing", 4)
    assert status["topicId"] == identity
    wait_config(fleet, "growing", "cleanup.policy", "compact")


def test_a_topic_that_would_shrink_is_refused_with_a_sentence(fleet, make):
    make("shrinking", 3)
    fleet.wait_topic("shrinking")
    said = fleet.kubernetes.refusal(topic("shrinking", fleet.name, 2), fleet.namespace)
    assert "only grow" in said
    wait_partitions(fleet, "shrinking", 3)


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"partitions": 0}, "spec.partitions"),
        ({"partitions": "many"}, "spec.partitions"),
        ({"colour": "green"}, "colour"),
        ({"topicName": "no spaces please"}, "spec.topicName"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_topic_is_refused_at_apply(fleet, spec, words):
    wrong = topic("wrong", fleet.name)
    wrong["spec"] |= spec
    assert words in fleet.kubernetes.refusal(wrong, fleet.namespace)


def test_a_wrong_cluster_is_refused_at_apply(fleet):
    wrong = example("cluster")
    wrong["spec"]["pools"][0]["zones"] = ["nowhere"]
    said = fleet.kubernetes.refusal(wrong, fleet.namespace)
    assert "zones must be among spec.zones" in said


def test_a_topic_says_nothing_of_replicas_and_has_three(fleet):
    """What a Cluster of three brokers begins with: one of them may be lost."""
    spec = example("topic")
    assert "replicas" not in spec["spec"]
    assert fleet.wait_topic(spec["metadata"]["name"])["status"]["replicas"] == 3


def test_more_replicas_than_there_are_brokers_are_refused_in_the_brokers_words(fleet, make):
    make("replicated", 1, replicas=5)

    def refusal() -> dict[str, str] | None:
        found = fleet.kubernetes.get(TOPICS, "replicated", fleet.namespace)
        ready = condition(found, "Ready")
        return ready if ready and ready["status"] == "False" else None

    ready = wait_for("the verdict", refusal, within_s=120)
    assert ready["reason"] == "Invalid"
    assert "Unable to replicate the partition 5 time(s)" in ready["message"]
    assert "replicated" not in names(fleet)


def test_of_two_topics_that_claim_one_name_one_is_ready_and_the_other_in_conflict(fleet, make):
    make("first", topicName="claimed")
    fleet.wait_topic("first")
    make("second", topicName="claimed")

    def verdict() -> str | None:
        found = fleet.kubernetes.get(TOPICS, "second", fleet.namespace)
        ready = condition(found, "Ready")
        return ready["reason"] if ready and ready["status"] == "False" else None

    assert wait_for("the verdict", verdict, within_s=120) == "Conflict"
    fleet.wait_topic("first")
    wait_named(fleet, "claimed")
    fleet.kubernetes.delete(TOPICS, "second", fleet.namespace)
    assert "claimed" in names(fleet)


def test_deleting_a_topic_removes_it_from_the_fleet(fleet, make):
    make("passing")
    fleet.wait_topic("passing")
    wait_named(fleet, "passing")
    fleet.kubernetes.delete(TOPICS, "passing", fleet.namespace)
    wait_for("the topic to go", lambda: "passing" not in names(fleet), within_s=120)


def test_a_topic_that_is_to_be_retained_stays(fleet, make):
    make("kept", deletionPolicy="Retain")
    make("not-kept")
    fleet.wait_topic("kept")
    fleet.wait_topic("not-kept")
    wait_named(fleet, "not-kept")
    for name in ("kept", "not-kept"):
        fleet.kubernetes.delete(TOPICS, name, fleet.namespace)
    wait_for("the other topic to go", lambda: "not-kept" not in names(fleet), within_s=120)
    assert "kept" in names(fleet)
    # It has one replica, and the suites that come next take volumes.
    admin = AdminClient({"bootstrap.servers": fleet.outside})
    admin.delete_topics(["kept"], operation_timeout=20)["kept"].result(timeout=20)


def test_a_topic_deleted_while_the_operator_is_down_is_removed_when_it_is_back(fleet, make):
    make("forgotten")
    make("remembered")
    fleet.wait_topic("forgotten")
    fleet.wait_topic("remembered")
    set_operator(fleet.kubernetes, running=False)
    fleet.kubernetes.delete(TOPICS, "forgotten", fleet.namespace)
    wait_named(fleet, "forgotten")
    set_operator(fleet.kubernetes, running=True)
    wait_for("the topic to go", lambda: "forgotten" not in names(fleet), DELETED_WITHIN_S)
    assert "remembered" in names(fleet)
