import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.metadata.image import ClusterImage, Features, Partition, Quotas, StoredConfigs
from logfleet.metadata.image_builder import Changes, CorruptMetadataError, ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.brokers import (
    ACTIVE,
    BROKER,
    DRAINING,
    FENCE,
    FENCED,
    BrokerValue,
    Endpoint,
    FenceValue,
)
from logfleet.metadata.kinds.cluster import (
    CLUSTER_ID,
    CONTROLLER,
    FEATURES,
    RECEIPT,
    ControllerValue,
    FeaturesValue,
)
from logfleet.metadata.kinds.configs import BROKER_CONFIG, GROUP_CONFIG
from logfleet.metadata.kinds.quotas import QUOTA, QuotaEntity
from logfleet.metadata.kinds.topics import (
    DELETED,
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    DeletedValue,
    PartitionValue,
    ReadyValue,
    TopicValue,
    partitions_of,
)
from logfleet.metadata.store import Delete, DeletePrefix, KeyValue, Operation, Put, Txn
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

ID = bytes(range(16))
UUID = uuids.to_text(ID)
TOPIC_7 = uuids.to_text((7).to_bytes(16, "big"))
HERE = BrokerValue("i1", (Endpoint("PLAINTEXT", "h", 9092),), "a")


class History:
    """A store's keyspace and the image that follows it."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.image = ClusterImage()
        self.changes = Changes()

    def commit(self, *operations: Operation) -> ClusterImage:
        _, batch = self.keyspace.evaluate(Txn(success=operations))
        if batch is not None:
            self.keyspace.apply(batch)
            builder = ImageBuilder(self.image)
            for event in batch.events:
                builder.add(event)
            self.image, self.changes = builder.build(batch.revision)
        return self.image

    def from_snapshot(self) -> ClusterImage:
        builder = ImageBuilder(ClusterImage())
        snapshot = self.keyspace.range("")
        for item in snapshot.items:
            builder.add(item)
        return builder.build(snapshot.revision)[0]


def put(key: str, value: object) -> Put:
    return Put(key, value.encode() if isinstance(value, str) else msgspec.json.encode(value))


def part(leader: int = 1, epoch: int = 0) -> PartitionValue:
    return PartitionValue(
        (1,), ((1, BrokerEpoch(5)),), leader, LeaderEpoch(epoch), PartitionEpoch(epoch), 1
    )


def topic_puts(name: str = "t", uuid: str = UUID, partitions: int = 2) -> list[Put]:
    return [
        put(TOPIC.key(name), TopicValue(uuid, {"retention.ms": "5"})),
        put(TOPIC_ID.key(uuids.from_text(uuid)), name),
        *(
            put(PARTITION.key((uuids.from_text(uuid), index)), part())
            for index in range(partitions)
        ),
    ]


def test_the_feature_level_is_1_until_it_is_written():
    history = History()
    assert history.image.features == Features(1, 0)
    image = history.commit(put(FEATURES.prefix, FeaturesValue(2, "0.2.0")))
    assert image.features == Features(2, image.revision)
    assert history.from_snapshot().features == image.features
    assert history.commit(FEATURES.delete(None)).features == Features(1, 0)


def test_a_topic_is_seen_only_when_it_is_ready():
    history = History()
    image = history.commit(*topic_puts())
    assert image.topic("t") is None
    assert image.topic_by_id(ID) is None
    assert list(image.topics()) == []
    assert image.topic_count() == 0
    assert image.unfinished == {ID}

    image = history.commit(put(READY.key(ID), ReadyValue(2)))
    topic = image.topic("t")
    assert topic is not None
    assert topic is image.topic_by_id(ID)
    assert (topic.name, topic.id, topic.configs) == ("t", ID, {"retention.ms": "5"})
    assert topic.partitions == (
        Partition(
            (1,), ((1, BrokerEpoch(5)),), 1, LeaderEpoch(0), PartitionEpoch(0), 1, revision=2
        ),
        Partition(
            (1,), ((1, BrokerEpoch(5)),), 1, LeaderEpoch(0), PartitionEpoch(0), 1, revision=2
        ),
    )
    assert (topic.revision, topic.ready_revision) == (2, 3)
    assert image.unfinished == frozenset()
    assert image.topic_count() == 1
    assert history.changes == Changes(topics={ID})


def test_partitions_beyond_ready_are_hidden_until_it_counts_them():
    history = History()
    history.commit(*topic_puts(), put(READY.key(ID), ReadyValue(2)))
    image = history.commit(put(PARTITION.key((ID, 2)), part()))
    topic = image.topic("t")
    assert topic is not None
    assert len(topic.partitions) == 2
    assert set(topic.hidden) == {2}
    assert image.unfinished == {ID}
    image = history.commit(put(READY.key(ID), ReadyValue(3)))
    assert image.partition(ID, 2) is not None
    assert image.partition(ID, 3) is None
    assert image.partition(ID, -1) is None
    assert image.partition(bytes(16), 0) is None
    assert image.unfinished == frozenset()


def test_a_change_of_one_partition_leaves_the_others_and_the_old_image_as_they_were():
    history = History()
    before = history.commit(*topic_puts(), put(READY.key(ID), ReadyValue(2)))
    after = history.commit(put(PARTITION.key((ID, 1)), part(-1, 1)))
    old, new = before.topic("t"), after.topic("t")
    assert old is not None
    assert new is not None
    assert old.partitions[1].leader == 1
    assert new.partitions[1].leader == -1
    assert new.partitions[0] is old.partitions[0]
    assert not new.partitions[1].has_leader
    assert new.partitions[1].isr_ids == [1]
    assert new.partitions[1].revision == 3


def test_a_deleted_topic_goes_at_once_and_its_logs_are_named():
    history = History()
    history.commit(*topic_puts(), put(READY.key(ID), ReadyValue(2)))
    image = history.commit(
        put(DELETED.key(ID), DeletedValue("t", (1, 2))),
        TOPIC.delete("t"),
        TOPIC_ID.delete(ID),
        READY.delete(ID),
        DeletePrefix(partitions_of(ID)),
    )
    assert image.topic("t") is None
    assert len(image.entries) == len(image.ids) == 0
    assert image.unfinished == frozenset()
    assert image.deleted[ID].brokers == (1, 2)
    assert history.changes == Changes(topics={ID}, parts={"deleted"})
    assert history.commit(DELETED.delete(ID)).deleted == {}


def test_a_topic_recreated_within_one_image_has_the_new_id():
    other = uuids.to_text(bytes(reversed(range(16))))
    history = History()
    history.commit(*topic_puts(), put(READY.key(ID), ReadyValue(2)))
    builder = ImageBuilder(history.image)
    for operations in (
        [
            TOPIC.delete("t"),
            READY.delete(ID),
            TOPIC_ID.delete(ID),
        ],
        [*topic_puts("t", other), put(READY.key(uuids.from_text(other)), ReadyValue(2))],
    ):
        _, batch = history.keyspace.evaluate(Txn(success=operations))
        assert batch is not None
        history.keyspace.apply(batch)
        for event in batch.events:
            builder.add(event)
    image, _ = builder.build(history.keyspace.revision)
    topic = image.topic("t")
    assert topic is not None
    assert topic.id == uuids.from_text(other)
    assert image.unfinished == {ID}  # its partitions are still there


def test_a_broker_is_active_only_by_a_fence_of_its_own_registration():
    history = History()
    image = history.commit(put(BROKER.key(1), HERE))
    assert not image.brokers[1].is_active
    assert image.brokers[1].epoch == 2
    image = history.commit(put(FENCE.key(1), FenceValue(BrokerEpoch(2), ACTIVE)))
    assert image.brokers[1].is_active
    assert history.changes == Changes(parts={"brokers"})
    assert history.changes.brokers
    history.commit(BROKER.delete(1))
    image = history.commit(put(BROKER.key(1), HERE))
    assert not image.brokers[1].is_active, "the fence is of an earlier registration"
    image = history.commit(put(FENCE.key(1), FenceValue(BrokerEpoch(5), FENCED)))
    assert not image.brokers[1].is_active
    image = history.commit(put(FENCE.key(1), FenceValue(BrokerEpoch(5), ACTIVE)))
    assert image.brokers[1].is_active
    assert not history.commit(FENCE.delete(1)).brokers[1].is_active


def test_a_broker_that_may_leave_is_neither_active_nor_fenced():
    history = History()
    history.commit(put(BROKER.key(1), BrokerValue("i", (), leaving=True)))
    image = history.commit(put(FENCE.key(1), FenceValue(BrokerEpoch(2), DRAINING)))
    broker = image.brokers[1]
    assert (broker.is_active, broker.is_draining, broker.is_fenced) == (False, True, False)
    assert broker.value.leaving


def test_a_broker_names_its_rack_and_its_listeners():
    broker = History().commit(put(BROKER.key(1), HERE)).brokers[1]
    assert broker.rack == "a"
    assert broker.listener("PLAINTEXT") == Endpoint("PLAINTEXT", "h", 9092)
    assert broker.listener("OTHER") is None


def test_controller_cluster_id_and_broker_configs_are_read():
    history = History()
    image = history.commit(
        put(CLUSTER_ID.prefix, "abc"),
        put(CONTROLLER.prefix, ControllerValue(3, "i")),
        put(BROKER_CONFIG.key(None), {"message.max.bytes": "9"}),
        put(BROKER_CONFIG.key(3), {"message.max.bytes": "8"}),
        put("of/another/version", "{"),
    )
    assert image.cluster_id == "abc"
    assert image.controller is not None
    assert (image.controller.broker, image.controller.epoch) == (3, 2)
    assert image.configs_of_broker(None) == StoredConfigs({"message.max.bytes": "9"}, 2)
    assert image.configs_of_broker(3).values == {"message.max.bytes": "8"}
    assert image.configs_of_broker(4) == StoredConfigs()
    assert history.changes == Changes(parts={"controller", "broker_configs"})
    image = history.commit(
        CLUSTER_ID.delete(None), CONTROLLER.delete(None), BROKER_CONFIG.delete(3)
    )
    assert image.cluster_id is None
    assert image.controller is None
    assert set(image.broker_configs) == {None}


def test_receipts_change_nothing_but_the_revision():
    """Nor in an image of an earlier version: `ctl/` would be taken for the controller's key."""
    history = History()
    before = history.commit(put(CONTROLLER.prefix, ControllerValue(1, "i1")))
    after = history.commit(Put(RECEIPT.key((1, 0)), b"5/1"), Put(RECEIPT.key((1, 7)), b"5/2"))
    assert history.changes == Changes()
    assert after == msgspec.structs.replace(before, revision=before.revision + 1)
    assert not RECEIPT.prefix.startswith(CONTROLLER.prefix)


def test_configs_of_groups_are_read():
    history = History()
    image = history.commit(put(GROUP_CONFIG.key("a/b"), {"share.isolation.level": "x"}))
    assert image.configs_of_group("a/b") == StoredConfigs({"share.isolation.level": "x"}, 2)
    image = history.commit(GROUP_CONFIG.delete("a/b"))
    assert image.configs_of_group("a/b") == StoredConfigs()


@pytest.mark.parametrize(
    "key, value",
    [
        (PARTITION.key((ID, 0)), b"{}"),
        (PARTITION.key((ID, 0)), b"["),
        ("part/short/0", b"{}"),
        ("broker/x", b"{}"),
        (READY.key(ID), b"2"),
    ],
)
def test_a_value_that_nobody_writes_is_an_error_that_names_the_key(key, value):
    with pytest.raises(CorruptMetadataError, match=key):
        History().commit(Put(key, value))


def test_changes_add_up():
    changes = Changes(topics={b"a"})
    changes.add(Changes(everything=True, topics={b"b"}, parts={"brokers"}))
    changes.add(Changes(parts={"deleted"}))
    assert changes == Changes(True, {b"a", b"b"}, {"brokers", "deleted"})
    assert (changes.brokers, changes.deleted) == (True, True)
    assert (changes.controller, changes.quotas, changes.broker_configs) == (False, False, False)


KEYS = [
    put(TOPIC.key("t"), TopicValue(UUID)),
    put(TOPIC_ID.key(ID), "t"),
    *(put(PARTITION.key((ID, index)), part(epoch=index)) for index in range(3)),
    put(READY.key(ID), ReadyValue(1)),
    put(READY.key(ID), ReadyValue(3)),
    put(DELETED.key(ID), DeletedValue("t", (1,))),
    put(BROKER.key(1), HERE),
    put(FENCE.key(1), FenceValue(BrokerEpoch(2), ACTIVE)),
    put(BROKER_CONFIG.key(1), {"a": "b"}),
    put(GROUP_CONFIG.key("g/1"), {"a": "b"}),
    put(CONTROLLER.prefix, ControllerValue(1, "i")),
]
OPERATIONS: list[Put | Delete] = [*KEYS, *(Delete(each.key) for each in KEYS)]
REVISION = st.lists(
    st.sampled_from(OPERATIONS), min_size=1, max_size=4, unique_by=lambda each: each.key
)


@given(st.lists(REVISION, max_size=30))
def test_following_revision_by_revision_ends_where_a_snapshot_begins(revisions):
    history = History()
    for operations in revisions:
        history.commit(*operations)
        fresh = history.from_snapshot()
        for field in ClusterImage.__struct_fields__:
            ours, theirs = getattr(history.image, field), getattr(fresh, field)
            if field in {"entries", "ids"}:
                assert list(ours) == list(theirs)
            elif history.image.revision:
                assert ours == theirs, field


def test_an_image_with_many_partitions_is_updated_without_looking_at_them():
    builder = ImageBuilder(ClusterImage())
    keyspace = Keyspace()
    operations: list[Operation] = []
    for number in range(300):
        uuid = uuids.to_text(number.to_bytes(16, "big"))
        operations += [
            *topic_puts(f"t{number}", uuid, 10),
            put(READY.key(uuids.from_text(uuid)), ReadyValue(10)),
        ]
    _, batch = keyspace.evaluate(Txn(success=operations))
    assert batch is not None
    for event in batch.events:
        builder.add(event)
    image, _ = builder.build(batch.revision)
    again = ImageBuilder(image)
    again.add(KeyValue(TOPIC.key("t7"), TOPIC.encode(TopicValue(TOPIC_7)), 2, 9, 2))
    following, changes = again.build(9)
    assert len(changes.topics) == 1
    kept = sum(following.topic(f"t{number}") is image.topic(f"t{number}") for number in range(300))
    assert kept == 299


def test_quotas_are_those_of_their_entities():
    entity: QuotaEntity = (("client-id", "app"), ("user", None))
    history = History()
    image = history.commit(put(QUOTA.key(entity), {"producer_byte_rate": 1000.0}))
    assert image.quotas == {entity: Quotas({"producer_byte_rate": 1000.0}, 2)}
    assert history.changes == Changes(parts={"quotas"})
    assert history.from_snapshot() == image
    assert history.commit(QUOTA.delete(entity)).quotas == {}
    assert image.quotas
    with pytest.raises(CorruptMetadataError, match="quota/user: not pairs"):
        history.commit(put("quota/user", {}))
