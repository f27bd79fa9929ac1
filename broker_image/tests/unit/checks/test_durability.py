"""Each finding of durability: in a fleet that has it, and not in a healthy one."""

from logfleet.checks import durability

from broker_image.tests.unit.checks.fleets import (
    broker,
    fleet,
    found,
    partition,
    remedies,
    topic,
)

SINGLE = topic("single", partition(replicas=(1,)))


def test_a_topic_with_one_replica_is_found() -> None:
    assert found(durability.one_replica, fleet(topic(), SINGLE)) == [
        ("single", "one replica: lost with its disk, away while its broker restarts")
    ]
    assert remedies(durability.one_replica, fleet(SINGLE)) == [
        "logfleet topic alter single --replicas 3"
    ]


def test_one_replica_is_all_that_one_broker_can_have() -> None:
    assert found(durability.one_replica, fleet(SINGLE, brokers=(broker(1),))) == []
    assert remedies(durability.one_replica, fleet(SINGLE, brokers=(broker(1), broker(2)))) == [
        "logfleet topic alter single --replicas 2"
    ]


def test_acks_all_that_waits_for_the_leader_alone_is_found() -> None:
    loose = topic("t", config={"min.insync.replicas": "1"})
    assert found(durability.min_isr_one, fleet(loose)) == [
        (
            "t",
            "min.insync.replicas is 1 with 3 replicas: acks=all may wait for the leader alone",
        )
    ]
    assert remedies(durability.min_isr_one, fleet(loose)) == [
        "logfleet config set topic t min.insync.replicas=2"
    ]


def test_internal_topics_with_too_few_replicas_are_found() -> None:
    offsets = topic("__consumer_offsets", partition(replicas=(1,)), internal=True)
    assert found(durability.few_internal_replicas, fleet(offsets)) == [
        ("__consumer_offsets", "1 replica, with 3 brokers")
    ]
    assert found(durability.one_replica, fleet(offsets)) == [], "it is found once"
    whole = topic("__consumer_offsets", internal=True)
    assert found(durability.few_internal_replicas, fleet(whole)) == []


def test_topics_that_clients_create_with_one_replica_are_found() -> None:
    def brokers(**config: str) -> list[tuple[str, str]]:
        keys = {name.replace("_", "."): value for name, value in config.items()}
        made = tuple(broker(each, config=keys) for each in (1, 2, 3))
        return found(durability.few_default_replicas, fleet(brokers=made))

    sentence = "default.replication.factor is 1"
    assert brokers(default_replication_factor="1") == [("brokers", sentence)]
    assert brokers(auto_create_topics_enable="true") == [
        ("brokers", f"{sentence}, and clients create topics by writing")
    ]
    unknown = tuple(broker(each, config=None) for each in (1, 2, 3))
    assert found(durability.few_default_replicas, fleet(brokers=unknown)) == []


def test_frequent_flushes_are_found_where_replicas_protect_records() -> None:
    often = {"flush.messages": "1"}
    assert found(durability.frequent_flushes, fleet(topic("t", config=often))) == [
        ("t", "flush.messages is 1: producers wait for the disk")
    ]
    single = topic("t", partition(replicas=(1,)), config=often)
    assert found(durability.frequent_flushes, fleet(single)) == []
