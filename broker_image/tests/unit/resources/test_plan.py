from typing import Any

import msgspec
import pytest
from logfleet.config.throttle_keys import Side
from logfleet.resources.cluster import ClusterResource, parse_cluster
from logfleet.resources.plan import (
    OF_MOVES,
    RATE_OF_ADDED,
    AlterClusterConfig,
    AlterTopicConfig,
    ClusterPlan,
    CreateTopic,
    GrowTopic,
    ObservedBroker,
    ObservedConfig,
    ObservedTopic,
    PartitionHealth,
    Reason,
    ReplicateTopic,
    TopicAction,
    claimants,
    conflict,
    plan_cluster,
    plan_topic,
)
from logfleet.resources.topic import TopicResource, parse_topic


def topic(name: str = "flights", created: str = "", uid: str = "", **spec: Any) -> TopicResource:
    return parse_topic(
        {
            "apiVersion": "logfleet.dev/v1beta1",
            "kind": "Topic",
            "metadata": {"name": name, "uid": uid, "creationTimestamp": created},
            "spec": {"clusterRef": {"name": "fleet"}, **spec},
        }
    )


def seen(partitions: int = 1, replicas: int = 1, **config: str) -> ObservedTopic:
    keys = {key.replace("_", "."): value for key, value in config.items()}
    return ObservedTopic("id", partitions, replicas, keys)


@pytest.mark.parametrize(
    "desired, observed, actions, why",
    [
        (
            topic(partitions=6, config={"retention.ms": -1}),
            None,
            [CreateTopic("flights", 6, None, {"retention.ms": "-1"})],
            "creating flights with 6 partitions",
        ),
        (
            topic(replicas=1),
            None,
            [CreateTopic("flights", 1, 1, {})],
            "creating flights with 1 partition",
        ),
        (topic(), seen(), [], "flights is as written"),
        (topic(replicas=1), seen(), [], "flights is as written"),
        (topic(), seen(replicas=3), [], "flights is as written"),
        (
            topic(partitions=6),
            seen(partitions=2),
            [GrowTopic("flights", 6)],
            "growing from 2 to 6 partitions",
        ),
        (
            topic(replicas=3),
            seen(),
            [ReplicateTopic("flights", 3)],
            "changing replicas from 1 to 3",
        ),
        (
            topic(replicas=2),
            msgspec.structs.replace(seen(replicas=2), replicas_most=3),
            [ReplicateTopic("flights", 2)],
            "changing replicas from 2 to 3 to 2",
        ),
        (
            topic(config={"retention.ms": 5, "segment.bytes": 9}),
            seen(retention_ms="4", segment_bytes="9", cleanup_policy="compact"),
            [AlterTopicConfig("flights", {"retention.ms": "5"}, ["cleanup.policy"])],
            "changing cleanup.policy, retention.ms",
        ),
        (
            topic(partitions=2, config={"retention.ms": 5}),
            seen(),
            [GrowTopic("flights", 2), AlterTopicConfig("flights", {"retention.ms": "5"}, [])],
            "growing from 1 to 2 partitions; changing retention.ms",
        ),
    ],
)
def test_a_topic_becomes_what_its_resource_says(
    desired: TopicResource, observed: ObservedTopic | None, actions: list[TopicAction], why: str
) -> None:
    plan = plan_topic(desired, observed)
    assert plan.actions == actions
    assert plan.why == why
    assert plan.refusal is None


def test_what_moves_of_replicas_have_set_is_left_alone_unless_the_resource_names_it() -> None:
    there = msgspec.structs.replace(seen(), config=dict.fromkeys(OF_MOVES, "*"))
    assert plan_topic(topic(), there).actions == []
    one, other = sorted(OF_MOVES)
    named = topic(config={one: "0:1", other: "*"})
    assert plan_topic(named, there).actions == [AlterTopicConfig("flights", {one: "0:1"}, [])]


@pytest.mark.parametrize(
    "desired, observed, says",
    [
        (topic(partitions=2, config={"retention.ms": 5}), seen(partitions=6), "write 6 or more"),
    ],
)
def test_what_cannot_be_done_yet_changes_nothing(
    desired: TopicResource, observed: ObservedTopic | None, says: str
) -> None:
    plan = plan_topic(desired, observed)
    assert plan.actions == []
    assert plan.refusal is not None
    assert plan.refusal.reason is Reason.NOT_SUPPORTED
    assert says in plan.why


def test_the_oldest_of_two_resources_holds_a_topics_name() -> None:
    older = topic("zebra", created="2026-01-01T00:00:00Z", topicName="flights")
    younger = topic("flights", created="2026-01-01T00:00:01Z")
    other = topic("weather")
    held = claimants([younger, older, other])
    assert held == {"flights": older, "weather": other}
    refusal = conflict(younger, held[younger.name].metadata.name)
    assert refusal.reason is Reason.CONFLICT
    assert refusal.message == (
        "topic flights belongs to the older Topic zebra; delete Topic flights or make it with "
        "another spec.topicName: deleting Topic zebra deletes the topic with its records, unless "
        "its deletionPolicy is Retain"
    )


def test_of_two_of_the_same_second_the_one_that_holds_the_topic_keeps_it() -> None:
    """Creation times are whole seconds: a second Topic must not take over what the first made."""
    first = topic("orders", uid="uid-1", created="2026-01-01T00:00:00Z")
    second = topic("again", uid="uid-2", created="2026-01-01T00:00:00Z", topicName="orders")
    assert claimants([first, second], {"uid-1"}) == {"orders": first}
    older = topic("zebra", uid="uid-3", created="2025-12-31T23:59:59Z", topicName="orders")
    assert claimants([first, older], {"uid-1"}) == {"orders": older}


def test_without_times_the_first_name_holds_it_in_whatever_order() -> None:
    first, second = topic("a", topicName="t"), topic("b", topicName="t")
    assert claimants([second, first]) == claimants([first, second]) == {"t": first}


def fleet(**config: Any) -> ClusterResource:
    return parse_cluster(
        {
            "apiVersion": "logfleet.dev/v1beta1",
            "kind": "Cluster",
            "metadata": {"name": "fleet"},
            "spec": {
                "zones": ["a", "b"],
                "pools": [{"name": "main", "replicas": 2, "storage": {"size": "1Gi"}}],
                "metadata": {"managed": {"replicas": 1}},
                "config": config,
            },
        }
    )


def test_a_broker_with_a_value_of_its_own_is_no_difference() -> None:
    """Else the values of all would be set again at every look, with an Event each."""
    wanted = fleet(**{"message.max.bytes": 9})
    here = ObservedConfig("9", read_only=False, cluster_wide=True)
    own = ObservedConfig("7", read_only=False, own=True)
    brokers = [broker(1, "a", message_max_bytes=here), broker(2, "b", message_max_bytes=own)]
    assert plan_cluster(wanted, brokers).actions == []


def broker(number: int, rack: str, **config: ObservedConfig) -> ObservedBroker:
    keys = {key.replace("_", "."): entry for key, entry in config.items()}
    return ObservedBroker(number, rack, keys)


def test_a_fleet_as_written_needs_nothing() -> None:
    entry = ObservedConfig("4", read_only=True)
    brokers = [broker(1, "a", num_partitions=entry), broker(2, "b", num_partitions=entry)]
    plan = plan_cluster(fleet(**{"num.partitions": 4}), brokers)
    assert plan.actions == []
    assert plan.differences == []
    assert plan.why == "as written"


def test_the_throttle_of_moves_is_set_for_whatever_adds_replicas() -> None:
    """By `logfleet apply` as by the operator, so that neither takes it away from the other."""
    key, rate = RATE_OF_ADDED, str(50 << 20)
    assert key == Side.ADDED.rate_key

    def plan(entry: ObservedConfig) -> ClusterPlan:
        keys = {key: entry}
        return plan_cluster(fleet(), [ObservedBroker(1, "a", keys), ObservedBroker(2, "b", keys)])

    unset = plan(ObservedConfig("9223372036854775807", read_only=False))
    assert unset.actions == [AlterClusterConfig({key: rate}, [])]
    assert plan(ObservedConfig(rate, read_only=False, cluster_wide=True)).actions == []


def test_only_dynamic_keys_of_a_running_fleet_are_changed() -> None:
    desired = fleet(**{"log.retention.ms": 5, "num.partitions": 4, "no.such": 1})
    entries = {
        "log_retention_ms": ObservedConfig("9", read_only=False),
        "num_partitions": ObservedConfig("1", read_only=True),
        "log_flush_interval_ms": ObservedConfig("7", read_only=False, cluster_wide=True),
    }
    plan = plan_cluster(desired, [broker(1, "a", **entries)])
    assert plan.actions == [
        AlterClusterConfig({"log.retention.ms": "5"}, ["log.flush.interval.ms"])
    ]
    assert plan.differences == [
        "spec.pools ask for 2 brokers, 1 run",
        "spec.zones are a, b, brokers run in a",
        "spec.config.no.such: brokers do not know this key",
        "spec.config.num.partitions is 4, brokers run with 1; it changes only with a restart",
    ]
    assert plan.why.startswith("changing log.flush.interval.ms, log.retention.ms; spec.pools")


@pytest.mark.parametrize(
    "lacks, reason, message",
    [
        (PartitionHealth(), None, ""),
        (
            PartitionHealth(1, 2, 3),
            Reason.OFFLINE_PARTITIONS,
            (
                "1 partition without a leader (they cannot be used), 2 partitions with too few in-sync "
                "replicas for acks=all, 3 partitions short of an in-sync replica"
            ),
        ),
        (
            PartitionHealth(0, 2, 2),
            Reason.UNDER_MIN_ISR_PARTITIONS,
            (
                "2 partitions with too few in-sync replicas for acks=all, 2 partitions short of an "
                "in-sync replica"
            ),
        ),
        (
            PartitionHealth(0, 0, 1),
            Reason.UNDER_REPLICATED_PARTITIONS,
            "1 partition short of an in-sync replica",
        ),
    ],
    ids=str,
)
def test_what_partitions_lack_is_one_sentence_and_the_worst_of_it_the_reason(
    lacks: PartitionHealth, reason: Reason | None, message: str
) -> None:
    assert (lacks.reason, str(lacks)) == (reason, message)
