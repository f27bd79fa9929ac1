"""Each finding of availability: in a fleet that has it, and not in a healthy one."""

import pytest
from logfleet.checks import availability
from logfleet.checks.snapshot import NO_LEADER, BrokerState, Gap, Part, Topic

from broker_image.tests.unit.checks.fleets import (
    broker,
    fleet,
    found,
    partition,
    remedies,
    topic,
)

BROKERS = [broker(each) for each in (1, 2, 3)]


def test_a_partition_without_a_leader_is_offline() -> None:
    lost = fleet(topic("orders", partition(0, leader=NO_LEADER), partition(1)))
    assert found(availability.offline, lost) == [
        ("orders", "1 of 2 partitions is without a leader: not read, not written")
    ]
    assert remedies(availability.offline, lost) == ["logfleet partitions lost"]


def test_the_only_partition_is_named_as_such() -> None:
    lost = fleet(topic("orders", partition(0, leader=NO_LEADER)))
    ((_, sentence),) = found(availability.offline, lost)
    assert sentence.startswith("its partition is without")


def test_a_partition_below_min_isr_takes_no_acks_all() -> None:
    lacking = fleet(topic("orders", partition(0, isr=(1,)), partition(1, isr=(2,)), partition(2)))
    assert found(availability.under_min_isr, lacking) == [
        ("orders", "2 of 3 partitions are below min.insync.replicas 2: no acks=all")
    ]
    assert remedies(availability.under_min_isr, lacking) == [
        "logfleet events --topic orders --since 1h"
    ]


def test_min_isr_is_not_judged_where_it_is_not_known() -> None:
    unknown = Topic("unknown", (partition(isr=(1,)),))
    assert found(availability.under_min_isr, fleet(unknown)) == []
    assert found(availability.no_broker_to_spare, fleet(unknown)) == []


def test_more_than_there_are_replicas_means_all_of_them() -> None:
    """Kafka: Partition.effectiveMinIsr."""
    many = topic("t", partition(replicas=(1, 2)), config={"min.insync.replicas": "3"})
    assert found(availability.under_min_isr, fleet(many)) == []
    lacking = topic("t", partition(replicas=(1, 2), isr=(1,)), config={"min.insync.replicas": "3"})
    assert len(found(availability.under_min_isr, fleet(lacking))) == 1


def test_an_offline_partition_is_not_below_min_isr_as_well() -> None:
    lost = fleet(topic("orders", partition(0, isr=(1,), leader=NO_LEADER)))
    assert found(availability.under_min_isr, lost) == []


@pytest.mark.parametrize("least, replicas", [(3, (1, 2, 3)), (4, (1, 2, 3)), (2, (1, 2))])
def test_a_topic_whose_replicas_all_have_to_be_in_sync_is_found(
    least: int, replicas: tuple[int, ...]
) -> None:
    strict = topic("t", partition(replicas=replicas), config={"min.insync.replicas": str(least)})
    count = len(replicas)
    assert found(availability.no_broker_to_spare, fleet(strict)) == [
        ("t", f"min.insync.replicas is {least} with {count} replicas: no broker may restart")
    ]
    assert remedies(availability.no_broker_to_spare, fleet(strict)) == [
        f"logfleet config set topic t min.insync.replicas={count - 1}"
    ]


def test_one_replica_has_none_to_spare_in_any_case() -> None:
    single = topic("t", partition(replicas=(1,)))
    assert found(availability.no_broker_to_spare, fleet(single, topic())) == []
    assert found(availability.no_broker_to_spare, fleet(Topic("t", (), config={}))) == []


def test_under_replicated_partitions_name_the_brokers_that_are_behind() -> None:
    lacking = fleet(topic("orders", partition(0, isr=(1, 2)), partition(1, isr=(2, 1))))
    assert found(availability.under_replicated, lacking) == [
        ("orders", "2 of 2 partitions are under-replicated: broker 3 behind")
    ]


def test_a_partition_without_a_leader_is_not_under_replicated_as_well() -> None:
    lost = fleet(topic("orders", partition(0, isr=(1,), leader=NO_LEADER)))
    assert found(availability.under_replicated, lost) == []


@pytest.mark.parametrize(
    "state, what", [(BrokerState.FENCED, "fenced"), (BrokerState.UNREGISTERED, "not registered")]
)
def test_a_broker_that_does_not_serve_is_named(state: BrokerState, what: str) -> None:
    broken = fleet(brokers=(*BROKERS[:2], broker(3, state=state)))
    assert found(availability.not_serving, broken) == [("broker 3", f"{what}, with 3 replicas")]
    assert remedies(availability.not_serving, broken) == ["logfleet events --broker 3"]


def test_a_registered_broker_that_does_not_answer_is_found() -> None:
    gaps = (Gap(Part.BROKERS, "h3:9092: Connection refused", 3),)
    silent = fleet(brokers=(*BROKERS[:2], broker(3, apis=None)), gaps=gaps)
    assert found(availability.not_serving, silent) == [
        ("broker 3", "does not answer (h3:9092: Connection refused), with 3 replicas")
    ]
    answering = fleet(gaps=(Gap(Part.BROKERS, "its configuration is not described", 3),))
    assert found(availability.not_serving, answering) == []


def test_replicas_that_share_a_zone_are_found() -> None:
    shared = fleet(
        topic("orders", partition(0, replicas=(1, 2, 4)), partition(1)),
        brokers=(*BROKERS, broker(4, zone="a")),
    )
    assert found(availability.zones_shared, shared) == [
        ("orders", "1 of 2 partitions is in fewer zones than possible")
    ]
    assert remedies(availability.zones_shared, shared) == ["logfleet rebalance run"]


def test_without_zones_none_is_shared() -> None:
    flat = fleet(brokers=tuple(broker(each, zone=None) for each in (1, 2, 3)))
    assert found(availability.zones_shared, flat) == []


def test_unclean_election_is_found_where_there_are_replicas_to_elect() -> None:
    unclean = {"unclean.leader.election.enable": "true"}
    several = topic("t", config=unclean)
    single = topic("single", partition(replicas=(1,)), config=unclean)
    assert [each for each, _ in found(availability.unclean_election, fleet(several, single))] == [
        "t"
    ]
    assert remedies(availability.unclean_election, fleet(several)) == [
        "logfleet config set topic t unclean.leader.election.enable=false"
    ]


def test_a_broker_that_leads_twice_its_share_is_found() -> None:
    uneven = topic("t", *(partition(each, replicas=(1, 2, 3)) for each in range(30)))
    assert found(availability.uneven_leaders, fleet(uneven)) == [
        ("broker 1", "leads 30 of 30 partitions")
    ]


def test_a_broker_of_two_that_leads_nearly_all_is_found() -> None:
    pair = (broker(1), broker(2))
    led = [partition(each, replicas=(1, 2) if each else (2, 1)) for each in range(30)]
    assert found(availability.uneven_leaders, fleet(topic("t", *led), brokers=pair)) == [
        ("broker 1", "leads 29 of 30 partitions")
    ]


def test_leaders_of_few_partitions_or_of_one_broker_are_not_uneven() -> None:
    few = topic("t", *(partition(each, replicas=(1, 2, 3)) for each in range(5)))
    assert found(availability.uneven_leaders, fleet(few)) == []
    many = topic("t", *(partition(each, replicas=(1,)) for each in range(30)))
    assert found(availability.uneven_leaders, fleet(many, brokers=(broker(1),))) == []


def test_brokers_without_a_zone_are_found_in_a_fleet_that_could_have_them() -> None:
    without = broker(3, zone=None)
    assert found(availability.no_zones, fleet(brokers=(*BROKERS[:2], without))) == [
        ("broker 3", "without a zone")
    ]
    assert found(availability.no_zones, fleet(brokers=(without,))) == []


def test_fewer_than_three_brokers_are_found() -> None:
    assert found(availability.small_fleet, fleet(brokers=(broker(1),))) == [
        ("fleet", "1 broker: for production have 3")
    ]
