import pytest
from logfleet.controller.brokers.feature_level import LEVEL_MAX, TRANSACTIONS
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.metadata.kinds.topics import NO_LEADER, TOPIC
from logfleet.metadata.store import TXN_BYTES_MAX, Put, Txn, check_txn
from logfleet.node.adoption.kraft import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    TOPIC_CONFIG,
    KraftMetadata,
    KraftPartition,
    KraftTopic,
)
from logfleet.node.adoption.writes import (
    NO_EPOCH,
    PRODUCER_ID_GAP,
    PUTS_PER_TXN,
    FoundDirectory,
    FoundLog,
    adoption_txns,
    plan_adoption,
)
from logfleet.quotas.entities import limits_of_addresses
from logfleet.types import LeaderEpoch
from logfleet.wire import uuids

A = bytes([1]) * 16
B = bytes([2]) * 16
A_TEXT = uuids.to_text(A)
NODE = 3


def kraft(partitions=2, *, name="a", configs=None):
    made = KraftMetadata()
    rows = {index: KraftPartition((NODE,), LeaderEpoch(5)) for index in range(partitions)}
    made.topics[A] = KraftTopic(A, name, rows)
    made.configs = configs or {}
    made.next_producer_id = 4000
    return made


def log(index, *, topic="a", path="/d", topic_id=A_TEXT, epoch=NO_EPOCH, **more):
    return FoundLog(path, TopicPartition(topic, index), topic_id, epoch, 10, **more)


def directory(*logs, path="/d", cluster="c", node=NODE, directory_id="d1", clean=True, others=()):
    return FoundDirectory(path, cluster, node, directory_id, clean, logs, others)


def planned(*directories, metadata=None, level=LEVEL_MAX):
    found = directories or [directory(log(0), log(1))]
    return plan_adoption(found, metadata or kraft(), level=level)


def image_of(keyspace: Keyspace) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    for item in keyspace.range("").items:
        builder.add(item)
    return builder.build(keyspace.revision)[0]


def commit(keyspace: Keyspace, txn: Txn) -> bool:
    check_txn(txn)
    result, batch = keyspace.evaluate(txn)
    if batch is not None:
        keyspace.apply(batch)
    return result.succeeded


def test_the_store_says_what_kafkas_metadata_said():
    metadata = kraft(
        configs={
            (TOPIC_CONFIG, "a"): {"retention.ms": "7"},
            (BROKER_CONFIG, ""): {
                "log.retention.ms": "8",
                "who.knows": "1",
                "log.flush.interval.ms": "-1",
            },
            (BROKER_CONFIG, "3"): {"log.cleaner.threads": "2"},
            (GROUP_CONFIG, "g"): {"consumer.session.timeout.ms": "45000"},
            (16, "metrics"): {"interval.ms": "1"},
        }
    )
    metadata.quotas[("client-id", "c"),] = {"producer_byte_rate": 5.0}
    adoption = planned(directory(log(0, epoch=9), log(1)), metadata=metadata)
    assert adoption.problems == ()
    assert [note.partition(":")[0] for note in adoption.notes] == [
        "broker config who.knows is left out",
        "broker config log.flush.interval.ms is left out",
        "the configs of metrics are left out",
    ]
    keyspace = Keyspace()
    assert all(commit(keyspace, txn) for txn in adoption_txns(adoption))
    image = image_of(keyspace)
    assert image.cluster_id == "c"
    topic = image.topic("a")
    assert topic is not None
    assert (topic.id, topic.configs) == (A, {"retention.ms": "7"})
    assert [(p.replicas, p.leader, p.leader_epoch) for p in topic.partitions] == [
        ((NODE,), NO_LEADER, 9),
        ((NODE,), NO_LEADER, 5),
    ]
    assert image.configs_of_broker(None).values == {"log.retention.ms": "8"}
    assert image.configs_of_broker(3).values == {"log.cleaner.threads": "2"}
    assert image.configs_of_group("g").values == {"consumer.session.timeout.ms": "45000"}
    assert image.quotas[("client-id", "c"),].values == {"producer_byte_rate": 5.0}
    held = keyspace.get(NEXT_PRODUCER_ID.prefix)
    assert held is not None
    assert int(held.value) == 4000 + PRODUCER_ID_GAP


def test_quotas_of_hosts_by_name_are_left_out_and_told():
    """Kafka's brokers look the name up; adopted as it is, it was every address's limit."""
    metadata = kraft()
    metadata.quotas = {
        (("ip", "client.example"),): {"connection_creation_rate": 1.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 2.0},
        (("ip", None),): {"connection_creation_rate": 3.0},
    }
    adoption = planned(metadata=metadata)
    assert adoption.problems == ()
    (note,) = adoption.notes
    assert note == (
        "the quotas of ClientQuotaEntity(entries={ip=client.example}) are left out: "
        "client.example is not an IP address; names of hosts are not looked up."
    )
    keyspace = Keyspace()
    assert all(commit(keyspace, txn) for txn in adoption_txns(adoption))
    assert limits_of_addresses(image_of(keyspace).quotas) == {"10.0.0.1": 2.0, None: 3.0}


def test_cut_off_after_any_transaction_it_can_be_repeated():
    """Also if Kafka was started in between and has deleted a topic: nothing of the first attempt is left."""
    many = PUTS_PER_TXN * 3
    first = plan_adoption(
        [directory(*(log(index) for index in range(many)))], kraft(partitions=many)
    )
    last = planned(directory(log(0, topic="b"), log(1, topic="b")), metadata=kraft(name="b"))
    txns = list(adoption_txns(first))
    assert len(txns) > 5
    wanted = Keyspace()
    for txn in adoption_txns(last):
        assert commit(wanted, txn)
    for cut in range(len(txns)):
        keyspace = Keyspace()
        for txn in txns[:cut]:
            assert commit(keyspace, txn)
        assert keyspace.get(CLUSTER_ID.prefix) is None, "no broker takes the half for the whole"
        for txn in adoption_txns(last):
            assert commit(keyspace, txn)
        assert values(keyspace) == values(wanted)


def values(keyspace: Keyspace) -> dict[str, bytes]:
    return {item.key: item.value for item in keyspace.range("").items}


def test_large_configurations_fit_the_stores_transactions():
    metadata = KraftMetadata()
    logs = []
    for number in range(8):
        topic_id = bytes([number + 1]) * 16
        name = f"t{number}"
        metadata.topics[topic_id] = KraftTopic(
            topic_id, name, {0: KraftPartition((NODE,), LeaderEpoch(0))}
        )
        listed = ",".join(f"{index}:{NODE}" for index in range(30_000))
        metadata.configs[TOPIC_CONFIG, name] = {"leader.replication.throttled.replicas": listed}
        logs.append(log(0, topic=name, topic_id=uuids.to_text(topic_id)))
    adoption = planned(directory(*logs), metadata=metadata)
    assert adoption.problems == ()
    keyspace = Keyspace()
    assert all(commit(keyspace, txn) for txn in adoption_txns(adoption))
    assert sum(len(value) for value in values(keyspace).values()) > TXN_BYTES_MAX


def test_a_store_with_a_cluster_is_not_written():
    keyspace = Keyspace()
    assert commit(keyspace, Txn((), (Put(CLUSTER_ID.prefix, b"other"), Put(TOPIC.key("x"), b"y"))))
    before = values(keyspace)
    assert not any(commit(keyspace, txn) for txn in adoption_txns(planned()))
    assert values(keyspace) == before


def test_a_directory_without_the_topics_id_counts_as_its_own():
    assert planned(directory(log(0, topic_id=None), log(1))).problems == ()


OTHER = "bQrxV1XaQAyDOV5OYVsTsQ"


@pytest.mark.parametrize(
    "directories, why",
    [
        ([directory(log(0))], "a-1 has no directory"),
        ([directory(log(0), log(1, topic_id=OTHER))], "a-1 has no directory"),
        ([directory(log(0), log(1)), directory(log(1, path="/e"), path="/e", directory_id="d2")], "there twice, in /d and in /e"),
        ([directory(log(0), log(1)), directory(path="/e")], "same directory.id"),
        ([directory(log(0), log(1)), directory(path="/e", directory_id="d2", node=4)], "node 4"),
        ([directory(log(0), log(1)), directory(path="/e", directory_id="d2", cluster="x")], "cluster x"),
    ],
)  # fmt: skip
def test_directories_that_cannot_be_adopted_are_named(directories, why):
    (problem,) = planned(*directories).problems
    assert why in problem


def test_metadata_that_cannot_be_kept_is_named():
    metadata = kraft(configs={(TOPIC_CONFIG, "a"): {"remote.storage.enable": "true"}})
    metadata.acls.add(A)
    metadata.topics[A].partitions[0].replicas = (NODE, 4)
    del metadata.topics[A].partitions[1]
    metadata.topics[A].partitions[2] = KraftPartition((NODE,), LeaderEpoch(0))
    metadata.topics[A].name = "a b"
    metadata.configs[TOPIC_CONFIG, "a b"] = metadata.configs.pop((TOPIC_CONFIG, "a"))
    problems = planned(metadata=metadata).problems
    for why in ("characters", "Tiered", "[0, 2]", "[3, 4]", "a b-2 has no directory", "1 ACLs"):
        assert any(why in problem for problem in problems), why
    with pytest.raises(AssertionError):
        list(adoption_txns(planned(metadata=metadata)))


@pytest.mark.parametrize("name, where", [("", "all brokers"), ("3", "broker 3")])
def test_a_config_that_asks_for_protection_is_not_left_out_but_refused(name, where):
    config = {"listener.name.a.ssl.client.auth": "required", "num.io.threads": "4"}
    adoption = planned(metadata=kraft(configs={(BROKER_CONFIG, name): config}))
    (problem,) = adoption.problems
    assert problem.startswith(f"Kafka keeps a config of {where}: listener.name.a.ssl.client.auth")


def with_coordinators():
    """Kafka's metadata and logs of a node whose clients used transactions."""
    metadata = kraft()
    rows = {0: KraftPartition((NODE,), LeaderEpoch(5))}
    metadata.topics[B] = KraftTopic(B, "__transaction_state", rows)
    return metadata, log(0, topic="__transaction_state", topic_id=uuids.to_text(B))


def test_a_fleet_without_transactions_takes_no_logs_with_aborted_or_open_ones():
    for why, found in (
        ("a-1 holds aborted transactions", log(1, has_aborted=True)),
        ("has not ended", log(1, has_open=True)),
    ):
        (problem,) = planned(directory(log(0), found), level=TRANSACTIONS - 1).problems
        assert why in problem


def test_a_fleet_without_transactions_must_know_that_all_have_ended():
    metadata, coordinators = with_coordinators()
    logs = [log(0), log(1), coordinators]
    assert planned(directory(*logs), metadata=metadata, level=TRANSACTIONS - 1).problems == ()
    (problem,) = planned(
        directory(*logs, clean=False), metadata=metadata, level=TRANSACTIONS - 1
    ).problems
    assert "stop it in order" in problem


def test_aborted_transactions_come_along():
    found = directory(log(0), log(1, has_aborted=True), clean=False)
    assert planned(found, level=TRANSACTIONS).problems == ()


def test_open_transactions_come_along_with_what_ends_them():
    opened = log(1, has_open=True)
    (problem,) = planned(directory(log(0), opened), level=TRANSACTIONS).problems
    assert "has not ended" in problem
    metadata, coordinators = with_coordinators()
    found = directory(log(0), opened, coordinators, clean=False)
    assert planned(found, metadata=metadata, level=TRANSACTIONS).problems == ()


def test_what_a_person_should_know_is_said():
    notes = planned(
        directory(
            log(0),
            log(1),
            log(2),
            log(1, topic="b"),
            log(0, topic_id=OTHER),
            clean=False,
            others=("a-3.0123-future",),
        )
    ).notes
    assert len(notes) == 5
    for why in ("not stopped in order", "-future is left", "fewer", "no such topic", OTHER):
        assert any(why in note for note in notes), why
