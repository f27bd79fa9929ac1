"""Checks of availability: what is down, and what goes down with one broker or zone. PURE."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from logfleet.checks.finding import Check, Found, Severity, check, counted, listed
from logfleet.checks.snapshot import NO_LEADER, BrokerState, Part, Snapshot, Topic

FLEET_MIN: Final = 3
"""Fewer brokers cannot lose one and keep two copies of what is written then."""
UNEVEN_LEADERS: Final = 2
"""A broker that leads this many times its share has too much."""
LEADERS_MIN: Final = 20
"""With fewer partitions a broker's share says nothing."""


def of_them(count: int, topic: Topic) -> str:
    """How many of the topic's partitions, as a subject: 2 of 6 partitions are."""
    total = len(topic.partitions)
    what = "its partition" if total == 1 else f"{count} of {total} partitions"
    return f"{what} {'is' if count == 1 else 'are'}"


@check("LF101", Severity.ERROR)
def offline(fleet: Snapshot) -> Iterator[Found]:
    """Partitions without a leader.

    Nothing can be read from them or written to them. All brokers that could lead are down, or their
    disks have failed.

    Start the brokers that have the replicas; `logfleet partitions lost` names them, and what is
    lost if they never return.
    """
    for topic in fleet.topics.values():
        count = sum(each.leader == NO_LEADER for each in topic.partitions)
        if count:
            sentence = f"{of_them(count, topic)} without a leader: not read, not written"
            yield Found(topic.name, sentence, "logfleet partitions lost")


@check("LF102", Severity.ERROR, Part.CONFIGS)
def under_min_isr(fleet: Snapshot) -> Iterator[Found]:
    """Fewer in-sync replicas than min.insync.replicas.

    Producers with acks=all are refused (NOT_ENOUGH_REPLICAS) until enough replicas are in sync
    again.

    Find out why the missing replicas do not follow: their broker is down, or too slow.
    """
    for topic in fleet.topics.values():
        least = topic.min_isr
        count = sum(
            least is not None
            and each.leader != NO_LEADER
            and len(each.isr) < min(least, len(each.replicas))
            for each in topic.partitions
        )
        if count:
            sentence = f"{of_them(count, topic)} below min.insync.replicas {least}: no acks=all"
            yield Found(topic.name, sentence, f"logfleet events --topic {topic.name} --since 1h")


@check("LF103", Severity.ERROR, Part.CONFIGS)
def no_broker_to_spare(fleet: Snapshot) -> Iterator[Found]:
    """All replicas have to be in sync.

    While any broker with a replica is down or restarts, producers with acks=all are refused. More
    than there are replicas counts as all of them.

    Lower min.insync.replicas to one less than there are replicas, or add a replica.
    """
    for topic in fleet.topics.values():
        least, replicas = topic.min_isr, topic.replicas
        if least is not None and 1 < replicas <= least:
            sentence = f"min.insync.replicas is {least} with {replicas} replicas"
            yield Found(
                topic.name,
                f"{sentence}: no broker may restart",
                f"logfleet config set topic {topic.name} min.insync.replicas={replicas - 1}",
            )


@check("LF104", Severity.WARNING)
def under_replicated(fleet: Snapshot) -> Iterator[Found]:
    """Under-replicated partitions.

    Some replicas do not have all records. The partitions are read and written, and one more failure
    may end that.

    It passes by itself after a restart, and while replicas are moved. Otherwise a broker is down,
    or its disk or network is too slow.
    """
    for topic in fleet.topics.values():
        lacking = [
            each
            for each in topic.partitions
            if each.leader != NO_LEADER and len(each.isr) < len(each.replicas)
        ]
        if lacking:
            missing = {broker for each in lacking for broker in set(each.replicas) - set(each.isr)}
            ids = listed([str(broker) for broker in sorted(missing)])
            sentence = f"{of_them(len(lacking), topic)} under-replicated: broker {ids} behind"
            yield Found(topic.name, sentence, f"logfleet events --topic {topic.name} --since 1h")


@check("LF105", Severity.ERROR)
def not_serving(fleet: Snapshot) -> Iterator[Found]:
    """Brokers that do not serve.

    A fenced broker is registered and may not lead. An unregistered one has replicas and does not
    run. One that does not answer is about to be fenced, or cannot be reached from here: then its
    advertised listener is wrong, or a network is in between.

    Start the broker. If it is gone for good, give its replicas to others: `logfleet drain ID`.
    """
    states = {BrokerState.FENCED: "fenced", BrokerState.UNREGISTERED: "not registered"}
    silent = {gap.broker: gap.reason for gap in fleet.gaps if gap.part is Part.BROKERS}
    for broker in fleet.brokers:
        what = states.get(broker.state)
        if what is None and broker.apis is None and broker.id in silent:
            what = f"does not answer ({silent[broker.id]})"
        if what is not None:
            held = sum(
                broker.id in each.replicas
                for topic in fleet.topics.values()
                for each in topic.partitions
            )
            sentence = f"{what}, with {counted(held, 'replica')}"
            yield Found(f"broker {broker.id}", sentence, f"logfleet events --broker {broker.id}")


@check("LF106", Severity.WARNING)
def zones_shared(fleet: Snapshot) -> Iterator[Found]:
    """Replicas that share a zone.

    The partitions have replicas in fewer zones than they could. If that zone is lost, they are down
    or lack replicas that another zone could have had.

    `logfleet rebalance plan` shows what would move; `logfleet rebalance run` moves it.
    """
    zone_of = {broker.id: broker.zone for broker in fleet.brokers}
    for topic in fleet.topics.values():
        count = 0
        for each in topic.partitions:
            zones = {zone_of.get(broker) for broker in each.replicas} - {None}
            count += 0 < len(zones) < min(len(each.replicas), len(fleet.zones))
        if count:
            sentence = f"{of_them(count, topic)} in fewer zones than possible"
            yield Found(topic.name, sentence, "logfleet rebalance run")


@check("LF107", Severity.WARNING, Part.CONFIGS)
def unclean_election(fleet: Snapshot) -> Iterator[Found]:
    """Unclean leader election.

    If all in-sync replicas are down, one that lacks records may lead. What was acknowledged and is
    not on it is lost, and consumers may read other records at the same offsets.

    Keep it only for topics whose records may be lost.
    """
    for topic in fleet.topics.values():
        config = topic.config or {}
        if topic.replicas > 1 and config.get("unclean.leader.election.enable") == "true":
            sentence = "a replica that lacks records may lead: acknowledged records can be lost"
            key = "unclean.leader.election.enable=false"
            yield Found(topic.name, sentence, f"logfleet config set topic {topic.name} {key}")


@check("LF108", Severity.HINT)
def uneven_leaders(fleet: Snapshot) -> Iterator[Found]:
    """Leaders are uneven.

    One broker leads far more partitions than its share. It has most of the work, and its failure is
    felt most.

    Leaders return to the first replica of each partition by themselves after some minutes
    (`auto.leader.rebalance.enable`). If it stays, the first replicas are uneven: rebalance.
    """
    leads = Counter(each.leader for topic in fleet.topics.values() for each in topic.partitions)
    total = sum(leads.values())
    if len(fleet.active) < 2 or total < LEADERS_MIN:
        return
    for broker in fleet.active:
        share = total / len(fleet.active)
        # of two brokers, one can have twice its share only by leading everything
        if leads[broker.id] >= min(UNEVEN_LEADERS * share, 0.9 * total):
            sentence = f"leads {leads[broker.id]:,} of {total:,} partitions"
            yield Found(f"broker {broker.id}", sentence, "logfleet rebalance plan")


@check("LF109", Severity.HINT)
def no_zones(fleet: Snapshot) -> Iterator[Found]:
    """Brokers without a zone.

    The broker has no `broker.rack`. Its replicas may all be in one rack or availability zone with
    their copies, and consumers cannot read from a near replica.

    Set `broker.rack` in the broker's configuration and restart it.
    """
    without = [str(broker.id) for broker in fleet.active if broker.zone is None]
    if len(fleet.active) >= FLEET_MIN and without:
        remedy = "set broker.rack in server.properties and restart"
        yield Found(f"broker {listed(without)}", "without a zone", remedy)


@check("LF110", Severity.HINT)
def small_fleet(fleet: Snapshot) -> Iterator[Found]:
    """Fewer than three brokers.

    With one broker nothing survives its loss. With two, a restart leaves one copy of what is
    written meanwhile.

    For production have three brokers, in three zones if there are as many.
    """
    count = len(fleet.brokers)
    if count < FLEET_MIN:
        sentence = f"{counted(count, 'broker')}: for production have {FLEET_MIN}"
        yield Found("fleet", sentence, "add brokers; for a trial: logfleet local --brokers 3")


CHECKS: Final[tuple[Check, ...]] = (
    offline,
    under_min_isr,
    no_broker_to_spare,
    under_replicated,
    not_serving,
    zones_shared,
    unclean_election,
    uneven_leaders,
    no_zones,
    small_fleet,
)
