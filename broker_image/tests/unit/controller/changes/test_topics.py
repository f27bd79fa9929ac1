import pytest
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.cordons import CORDONED
from logfleet.controller.changes.topics import (
    CONFIG_BYTES_MAX,
    NewPartitions,
    NewTopic,
    TopicCreation,
    confirm_deleted,
    create_partitions,
    create_topic,
    delete_topic,
    name_problem,
    refuse_request,
    remove_unfinished,
)
from logfleet.metadata.image import INTERNAL_TOPICS
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.metadata.kinds.topics import PARTITION, PartitionValue
from logfleet.metadata.store import Txn
from logfleet.types import LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

ID = bytes(range(16))


def refused(answer: object) -> tuple[str, str]:
    assert isinstance(answer, Refusal), answer
    return answer.error.name, answer.message


def new_topic(cluster, name: str = "t", **given):
    given.setdefault("partitions", 1 if not given.get("assignments") else -1)
    return create_topic(
        cluster.image, cluster.epoch, NewTopic(name, ID, 0, **given), cluster.layers
    )


def test_a_topic_is_there_after_one_transaction_if_it_is_small(cluster):
    cluster.start(1, 2)
    creation = cluster.create("t", 4, configs={"retention.ms": "5"})
    assert len(creation.txns) == 1
    assert (creation.partitions, creation.replication_factor) == (4, 1)
    topic = cluster.topic("t")
    assert topic.configs == {"retention.ms": "5"}
    assert [partition.leader for partition in topic.partitions] == [1, 2, 1, 2]
    assert all(partition.leader_epoch == 0 for partition in topic.partitions)
    assert not cluster.image.unfinished


def test_a_large_topic_is_seen_only_after_the_last_transaction(cluster):
    cluster.start(1, 2, 3)
    creation = new_topic(cluster, partitions=1000)
    assert isinstance(creation, TopicCreation)
    assert len(creation.txns) == 8
    for txn in creation.txns:
        assert cluster.image.topic("t") is None
        assert cluster.commit(txn)
    assert len(cluster.topic("t").partitions) == 1000


def test_a_new_controller_removes_a_topic_that_was_left_half_made(cluster):
    cluster.start(1)
    creation = new_topic(cluster, partitions=300)
    assert isinstance(creation, TopicCreation)
    assert cluster.commit(creation.txns[0])
    cluster.elect(2)
    assert not cluster.commit(creation.txns[1])
    (topic_id,) = cluster.image.unfinished
    entry = cluster.image.entries.get(topic_id)
    assert entry is not None
    assert cluster.commit(remove_unfinished(cluster.epoch, entry))
    assert len(cluster.image.entries) == len(cluster.image.ids) == 0
    assert not cluster.image.unfinished
    assert not cluster.keyspace.range("part/").items
    assert not cluster.keyspace.range("tid/").items
    cluster.create("t", 2)


def test_a_half_made_topic_s_name_is_not_free_for_another(cluster):
    cluster.start(1)
    creation = new_topic(cluster, partitions=300)
    assert isinstance(creation, TopicCreation)
    assert cluster.commit(creation.txns[0])
    assert refused(new_topic(cluster))[0] == "TOPIC_ALREADY_EXISTS"


def test_two_creations_of_one_name_decided_at_once_make_one_topic(cluster):
    cluster.start(1)
    first, second = new_topic(cluster), new_topic(cluster)
    assert isinstance(first, TopicCreation)
    assert isinstance(second, TopicCreation)
    assert cluster.commit(first.txns[0])
    assert not cluster.commit(second.txns[0])


def test_a_leader_lost_meanwhile_makes_the_creation_fail(cluster):
    cluster.start(1, 2)
    creation = new_topic(cluster, partitions=2)
    assert isinstance(creation, TopicCreation)
    cluster.stop(2)
    assert not cluster.commit(creation.txns[0])


def test_defaults_come_from_the_broker_s_configuration(cluster):
    cluster.start(1)
    cluster.layers = BrokerLayers({"num.partitions": "3", "min.insync.replicas": "1"})
    creation = cluster.create("t", -1)
    assert (creation.partitions, creation.replication_factor) == (3, 1)


def test_replicas_of_a_topic_are_spread_over_racks_and_all_in_sync(cluster):
    for broker_id, rack in enumerate("aabbcc", 1):
        cluster.start(broker_id, rack=rack, directories=(f"d{broker_id}",))
    cluster.create("t", 12, replication_factor=3)
    for partition in cluster.topic("t").partitions:
        assert len({cluster.image.brokers[each].rack for each in partition.replicas}) == 3
        assert partition.isr_ids == list(partition.replicas)
        assert partition.leader == partition.replicas[0] == partition.last_leader
        assert partition.last_directory == f"d{partition.leader}"


def test_a_topic_takes_brokers_that_are_away_only_if_it_has_to_and_not_as_leaders(cluster):
    cluster.start(1, 2, 3)
    cluster.stop(1)
    cluster.create("t", 4, replication_factor=2)
    assert not any(1 in partition.replicas for partition in cluster.topic("t").partitions)
    cluster.create("u", 4, replication_factor=3)
    for partition in cluster.topic("u").partitions:
        assert set(partition.replicas) == {1, 2, 3}
        assert (1 in partition.isr_ids, partition.leader in {2, 3}) == (False, True)
    cluster.start(1)
    assert cluster.topic("u").partitions[0].leader in {2, 3}, "it is not in sync yet"


def test_a_default_replication_factor_that_cannot_be_had_is_not_lowered(cluster):
    cluster.start(1, 2)
    cluster.layers = BrokerLayers({"default.replication.factor": "3"})
    error, _ = refused(new_topic(cluster))
    assert error == "INVALID_REPLICATION_FACTOR"
    cluster.start(3)
    assert cluster.create("t", -1).replication_factor == 3


def test_a_manual_assignment_may_name_brokers_that_are_away_if_one_is_there(cluster):
    cluster.start(1, 2)
    cluster.stop(2)
    cluster.create("t", -1, assignments=((0, (2, 1)),))
    (partition,) = cluster.topic("t").partitions
    assert (partition.replicas, partition.isr_ids, partition.leader) == ((2, 1), [1], 1)
    error, message = refused(new_topic(cluster, name="u", assignments=((0, (1,)), (1, (2,)))))
    assert error == "INVALID_REPLICA_ASSIGNMENT"
    assert "for partition 1 are fenced or in controlled shutdown" in message


def test_manual_assignments_are_taken_in_the_order_of_their_partitions(cluster):
    cluster.start(1, 2)
    cluster.create("t", -1, assignments=((1, (1,)), (0, (2,))))
    assert [partition.replicas for partition in cluster.topic("t").partitions] == [(2,), (1,)]


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"name": ""}, "INVALID_TOPIC_EXCEPTION", "the empty string is not allowed"),
        ({"name": "__cluster_metadata"}, "INVALID_REQUEST", "is prohibited"),
        ({"name": "a b"}, "INVALID_TOPIC_EXCEPTION", "other than ASCII alphanumerics"),
        ({"name": "has.dot"}, "TOPIC_ALREADY_EXISTS", "Topic 'has.dot' already exists."),
        ({"name": "has_dot"}, "INVALID_TOPIC_EXCEPTION", "collides with existing topic: has.dot"),
        ({"partitions": 0}, "INVALID_PARTITIONS", "invalid non-positive value"),
        ({"partitions": -2}, "INVALID_PARTITIONS", "invalid non-positive value"),
        ({"partitions": 10_001}, "POLICY_VIOLATION", "Excessively large number of partitions"),
        ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR", "must be larger than 0"),
        (
            {"replication_factor": 3},
            "INVALID_REPLICATION_FACTOR",
            "replication factor of 3 cannot be reached because only 2 broker(s) are registered",
        ),
        ({"configs": {"foo": "1"}}, "INVALID_CONFIG", "Unknown topic config name: foo"),
        ({"configs": {"foo": "1"}, "partitions": 0}, "INVALID_CONFIG", "Unknown topic config"),
        ({"configs": {"retention.ms": None}}, "INVALID_CONFIG", "Null value not supported"),
        (
            {"configs": {"leader.replication.throttled.replicas": "0:1," * 70_000 + "0:1"}},
            "INVALID_CONFIG",
            f"longer than {CONFIG_BYTES_MAX} bytes",
        ),
        (
            {"assignments": ((0, (1,)),), "partitions": 1},
            "INVALID_REQUEST",
            "numPartitions was not set to -1",
        ),
        (
            {"assignments": ((0, (1,)),), "replication_factor": 1},
            "INVALID_REQUEST",
            "replication factor was not set to -1",
        ),
        (
            {"assignments": ((0, (1,)), (2, (1,)))},
            "INVALID_REPLICA_ASSIGNMENT",
            "consecutive 0-based integer sequence",
        ),
        ({"assignments": ((0, (1,)), (0, (1,)))}, "INVALID_REPLICA_ASSIGNMENT", "multiple manual"),
        ({"assignments": ((0, ()),)}, "INVALID_REPLICA_ASSIGNMENT", "empty replica list"),
        ({"assignments": ((0, (1, 1)),)}, "INVALID_REPLICA_ASSIGNMENT", "more than once"),
        ({"assignments": ((0, (7,)),)}, "INVALID_REPLICA_ASSIGNMENT", "broker 7, but no such"),
        (
            {"assignments": ((0, (1, 2)), (1, (1,)))},
            "INVALID_REPLICA_ASSIGNMENT",
            "a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2",
        ),
        (
            {"assignments": tuple((index, (1,)) for index in range(10_001))},
            "POLICY_VIOLATION",
            "Excessively large",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(cluster, given, error, message):
    cluster.start(1, 2)
    cluster.create("has.dot")
    code, text = refused(new_topic(cluster, **given))
    assert code == error
    assert message in text


def test_without_any_broker_nothing_can_be_placed(cluster):
    code, text = refused(new_topic(cluster))
    assert code == "INVALID_REPLICATION_FACTOR"
    assert "only 0 broker(s)" in text


def test_a_refusal_counts_and_names_brokers_that_are_cordoned(cluster):
    cluster.start(1, 2, 3)
    cluster.put(BROKER_CONFIG.key(3), {CORDONED: "*"})
    code, text = refused(new_topic(cluster, replication_factor=3))
    assert code == "INVALID_REPLICATION_FACTOR"
    assert "2 broker(s) are registered and not cordoned; 1 broker(s) are cordoned: 3." in text


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_good_names(name):
    assert name_problem(name) is None


@pytest.mark.parametrize("name", [".", "..", "x" * 250, "ä", "a/b", "a\n"])
def test_bad_names(name):
    assert name_problem(name)


def grow(cluster, count: int, assignments=None, name: str = "t"):
    new = NewPartitions(name, count, 0, assignments)
    return create_partitions(cluster.image, cluster.epoch, new, cluster.layers)


def test_growing_fills_up_the_brokers_that_lead_fewest(cluster):
    cluster.start(1)
    cluster.create("t", 2)
    cluster.start(2)
    for txn in grow(cluster, 4):
        assert cluster.commit(txn)
    leaders = [partition.leader for partition in cluster.topic("t").partitions]
    assert leaders == [1, 1, 2, 2]
    assert not cluster.image.unfinished


def test_a_large_growth_is_seen_at_once_and_what_a_lost_controller_left_is_removed(cluster):
    cluster.start(1)
    cluster.create("t", 2)
    txns = grow(cluster, 502)
    assert len(txns) == 4
    for txn in txns[:-1]:
        assert cluster.commit(txn)
        assert len(cluster.topic("t").partitions) == 2
    rounds = 0
    while cluster.image.unfinished:
        entry = cluster.topic("t")
        assert cluster.commit(remove_unfinished(cluster.epoch, entry))
        rounds += 1
    assert rounds == 3
    assert len(cluster.keyspace.range("part/").items) == 2
    for txn in grow(cluster, 3):
        assert cluster.commit(txn)
    assert len(cluster.topic("t").partitions) == 3


def test_what_arrives_late_of_a_creation_changes_nothing_of_a_topic_that_is_there(cluster):
    """An attempt without an answer is repeated, and etcd may commit it after its repetition (see logfleet.metadata.store)."""
    cluster.start(1)
    creation = cluster.create("t", 300)
    assert len(creation.txns) > 2
    for txn in grow(cluster, 302):
        assert cluster.commit(txn)
    before = cluster.keyspace.range("")
    assert not any(cluster.commit(txn) for txn in creation.txns)
    assert cluster.keyspace.range("") == before
    assert len(cluster.topic("t").partitions) == 302


def test_manual_assignments_of_new_partitions(cluster):
    cluster.start(1, 2)
    cluster.create("t")
    for txn in grow(cluster, 3, ((2,), (2,))):
        assert cluster.commit(txn)
    assert [each.leader for each in cluster.topic("t").partitions] == [1, 2, 2]


@pytest.mark.parametrize(
    "count, assignments, error, message",
    [
        (2, None, "INVALID_PARTITIONS", "Topic already has 2 partition(s)."),
        (1, None, "INVALID_PARTITIONS", "currently has 2 partition(s); 1 would not be an increase"),
        (4, ((1,),), "INVALID_REPLICA_ASSIGNMENT", "add 2 additional partition(s), but only 1"),
        (3, ((9,),), "INVALID_REPLICA_ASSIGNMENT", "broker 9, but no such broker"),
        (
            3,
            ((1, 2),),
            "INVALID_REPLICA_ASSIGNMENT",
            "previous partitions, which have 1 replica(s)",
        ),
        (20_000, None, "POLICY_VIOLATION", "Excessively large"),
    ],
)
def test_what_cannot_grow_is_refused(cluster, count, assignments, error, message):
    cluster.start(1, 2)
    cluster.create("t", 2)
    code, text = refused(grow(cluster, count, assignments))
    assert code == error
    assert message in text


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_internal_topics_do_not_grow_as_what_they_hold_would_no_longer_be_found(cluster, name):
    cluster.start(1)
    cluster.create(name, 2)
    code, text = refused(grow(cluster, 3, name=name))
    assert code == "INVALID_PARTITIONS"
    assert f"internal topic {name} keeps its 2 partition(s)" in text


def test_an_unknown_topic_does_not_grow(cluster):
    assert refused(grow(cluster, 2))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


def test_a_deleted_topic_leaves_only_who_has_to_remove_logs(cluster):
    cluster.start(1, 2)
    cluster.create("t", 3)
    topic = cluster.topic("t")
    assert cluster.commit(delete_topic(cluster.epoch, topic))
    assert cluster.image.topic("t") is None
    left = [item.key for item in cluster.keyspace.range("").items if item.key.count("/") == 1]
    uuid = uuids.to_text(topic.id)
    assert left == ["broker/1", "broker/2", f"deleted/{uuid}", "fence/1", "fence/2"]
    deleted = cluster.image.deleted[topic.id]
    assert (deleted.name, deleted.brokers) == ("t", (1, 2))
    assert not cluster.commit(delete_topic(cluster.epoch, topic)), "it is gone already"


def test_the_last_broker_that_confirms_removes_the_key(cluster):
    cluster.start(1, 2)
    cluster.create("t", 2)
    topic = cluster.topic("t")
    assert cluster.commit(delete_topic(cluster.epoch, topic))
    first = cluster.image.deleted[topic.id]
    assert cluster.commit(confirm_deleted(first, 2))
    assert cluster.image.deleted[topic.id].brokers == (1,)
    assert not cluster.commit(confirm_deleted(first, 1)), "decided before the other confirmed"
    assert cluster.commit(confirm_deleted(cluster.image.deleted[topic.id], 1))
    assert cluster.image.deleted == {}


def test_a_deleted_name_is_free_again_under_another_id(cluster):
    cluster.start(1)
    cluster.create("t")
    old = cluster.topic("t").id
    assert cluster.commit(delete_topic(cluster.epoch, cluster.topic("t")))
    creation = new_topic(cluster)
    assert isinstance(creation, TopicCreation)
    assert cluster.commit(creation.txns[0])
    assert cluster.topic("t").id == ID != old


def test_removing_an_orphan_does_not_take_a_name_that_is_another_s(cluster):
    cluster.start(1)
    cluster.create("t")
    orphan = uuids.to_text(ID)
    cluster.put(
        PARTITION.key((uuids.from_text(orphan), 0)),
        PartitionValue((1,), (), -1, LeaderEpoch(0), PartitionEpoch(0), 1),
    )
    entry = cluster.image.entries.get(ID)
    assert entry is not None
    txn: Txn = remove_unfinished(cluster.epoch, entry)
    assert cluster.commit(txn)
    assert cluster.topic("t").partitions
    assert not cluster.image.unfinished


def limits(**given: str) -> BrokerLayers:
    return BrokerLayers({f"logfleet.{key}.max": value for key, value in given.items()})


@pytest.mark.parametrize(
    "layers, partitions, allowed",
    [
        (limits(), 100, True),
        (limits(topics="2"), 1, True),
        (limits(topics="1"), 1, False),
        (limits(partitions="5"), 2, True),
        (limits(partitions="5"), 3, False),
        (limits(topics="0"), 1, False),
    ],
)
def test_a_cluster_has_as_many_topics_and_partitions_as_it_may(
    cluster, layers, partitions, allowed
):
    cluster.start(1)
    cluster.create("there", 3)
    new = NewTopic("t", b"i" * 16, 0, partitions)
    created = create_topic(cluster.image, cluster.epoch, new, layers)
    assert isinstance(created, TopicCreation) == allowed
    if not allowed:
        assert refused(created)[0] == "POLICY_VIOLATION"


def test_a_topic_grows_as_far_as_the_cluster_may(cluster):
    cluster.start(1)
    cluster.create("there", 3)
    layers = limits(partitions="5", topics="0")
    for count, allowed in ((5, True), (6, False)):
        new = NewPartitions("there", count, 0)
        grown = create_partitions(cluster.image, cluster.epoch, new, layers)
        assert isinstance(grown, tuple) == allowed
        if not allowed:
            assert "logfleet.partitions.max=5" in refused(grown)[1]


def test_the_partitions_of_a_request_are_counted_together():
    layers = BrokerLayers({"num.partitions": "5000"})

    def topic(partitions: int = -1, assignments: int = 0) -> NewTopic:
        assigned = tuple((index, (1,)) for index in range(assignments))
        return NewTopic("t", b"i" * 16, 0, partitions, assignments=assigned)

    assert refuse_request([topic(), topic(), topic(-7), topic(0)], layers) is None
    for one_more in (topic(1), topic(assignments=1)):
        refusal = refuse_request([topic(), topic(5000), one_more], layers)
        assert refusal is not None
        assert refusal.error is ErrorCode.POLICY_VIOLATION
