"""Records as Kafka's controller writes them, in its frame; what a real Kafka wrote is read by e2e/suites/local/test_adopt.py."""

import pytest
from logfleet.node.adoption.kraft import BROKER_CONFIG, TOPIC_CONFIG, KraftMetadata, UnreadableKraft
from logfleet.wire.messages import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)

from broker_image.tests.unit.node.adoption.kraft_frames import framed

A, B = bytes([1]) * 16, bytes([2]) * 16


def replayed(*records):
    kraft = KraftMetadata()
    for record in records:
        kraft.replay(record if isinstance(record, bytes) else framed(record))
    return kraft


def test_topics_partitions_and_configs_are_as_the_last_record_says():
    kraft = replayed(
        TopicRecord(name="a", topic_id=A),
        PartitionRecord(partition_id=0, topic_id=A, replicas=[1], leader=1, leader_epoch=0),
        framed(
            PartitionRecord(partition_id=1, topic_id=A, replicas=[1], leader=1, leader_epoch=4), 2
        ),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="a", name="x", value="1"),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="a", name="y", value="2"),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="a", name="x", value=None),
        ConfigRecord(resource_type=BROKER_CONFIG, resource_name="", name="z", value="3"),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
    )
    partitions = kraft.topics[A].partitions
    assert {index: (p.replicas, p.leader_epoch) for index, p in partitions.items()} == {
        0: ((1,), 0),
        1: ((1,), 4),
    }
    assert kraft.configs == {(TOPIC_CONFIG, "a"): {"y": "2"}, (BROKER_CONFIG, ""): {"z": "3"}}
    assert kraft.next_producer_id == 2000


@pytest.mark.parametrize(
    "change, epoch, replicas",
    [
        ({"leader": -1}, 4, (1,)),
        ({"leader": 1}, 4, (1,)),
        ({"isr": [1]}, 3, (1,)),
        ({"replicas": [2]}, 3, (2,)),
    ],
)
def test_a_leaders_epoch_grows_with_each_leader_that_is_named(change, epoch, replicas):
    kraft = replayed(
        TopicRecord(name="a", topic_id=A),
        PartitionRecord(partition_id=0, topic_id=A, replicas=[1], leader=1, leader_epoch=3),
        PartitionChangeRecord(partition_id=0, topic_id=A, **change),
    )
    partition = kraft.topics[A].partitions[0]
    assert (partition.leader_epoch, partition.replicas) == (epoch, replicas)


def test_a_removed_topic_takes_its_configs_with_it():
    kraft = replayed(
        TopicRecord(name="a", topic_id=A),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="a", name="x", value="1"),
        RemoveTopicRecord(topic_id=A),
        TopicRecord(name="a", topic_id=B),
    )
    assert list(kraft.topics) == [B]
    assert kraft.configs == {}


def test_quotas_and_acls_come_and_go():
    entity = [
        ClientQuotaRecord.EntityData(entity_type="user", entity_name=None),
        ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="c"),
    ]
    key = (("client-id", "c"), ("user", None))
    acl = AccessControlEntryRecord(id=A, resource_name="x", principal="User:a", host="*")
    first = [ClientQuotaRecord(entity=entity, key="k", value=1.5, remove=False), acl]
    kraft = replayed(*first)
    assert kraft.quotas == {key: {"k": 1.5}}
    assert kraft.acls == {A}
    last = [
        ClientQuotaRecord(entity=entity, key="k", remove=True),
        RemoveAccessControlEntryRecord(id=A),
    ]
    kraft = replayed(*first, *last)
    assert (kraft.quotas, kraft.acls) == ({}, set())


BEGIN, END, ABORT = bytes([1, 23, 0, 0]), bytes([1, 24, 0, 0]), bytes([1, 25, 0, 0])


@pytest.mark.parametrize("end, there", [(END, True), (ABORT, False), (b"", False)])
def test_a_transaction_counts_once_it_has_ended(end, there):
    kraft = replayed(BEGIN, TopicRecord(name="a", topic_id=A), *([end] if end else []))
    assert (A in kraft.topics) is there


@pytest.mark.parametrize(
    "value, why",
    [
        (b"", "unreadable"),
        (bytes([1, 2, 0, 3]), "unreadable"),
        (bytes([1, 2, 9]), "unreadable"),
        (bytes([1, 30, 0, 0]), "newer than Kafka 4.4"),
        (bytes([2, 2, 0, 0]), "newer than Kafka 4.4"),
        (framed(RemoveTopicRecord(topic_id=A)), "not there"),
        (framed(PartitionChangeRecord(partition_id=0, topic_id=A)), "not there"),
    ],
)
def test_what_is_not_understood_is_refused(value, why):
    with pytest.raises(UnreadableKraft, match=why):
        replayed(value)


def test_a_change_of_a_partition_that_is_not_there_is_refused():
    with pytest.raises(UnreadableKraft, match="partition 7"):
        replayed(
            TopicRecord(name="a", topic_id=A), PartitionChangeRecord(partition_id=7, topic_id=A)
        )
