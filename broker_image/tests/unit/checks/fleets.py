"""Fleets for the tests of checks: a healthy one, and small changes of it."""

from typing import Any

from logfleet.checks.finding import Check
from logfleet.checks.snapshot import (
    NO_LEADER,
    Batch,
    Broker,
    BrokerState,
    Directory,
    Group,
    Member,
    Partition,
    Readings,
    Snapshot,
    Topic,
)
from logfleet.controller.brokers.cordons import CORDONED
from logfleet.controller.brokers.feature_level import FeatureLevel

NOW_MS = 1_700_000_000_000
GIB = 1 << 30
APIS = {0: (3, 13), 1: (4, 17)}
READER = Member("app", "/10.0.0.1", {"orders": (0, 1, 2)})


def broker(broker_id: int, **fields: Any) -> Broker:
    """A broker with which all is well; its zone is a, b or c."""
    healthy: dict[str, Any] = {
        "zone": "abc"[(broker_id - 1) % 3],
        "config": {"default.replication.factor": "3", "auto.create.topics.enable": "false"},
        "directories": (Directory("/data", None, 100 * GIB, 60 * GIB),),
        "apis": APIS,
        "clock_ahead_s": 0.1,
        "readings": Readings(100.0, 10_000.0, 1e6, 20_000.0, 0.0),
    }
    return Broker(broker_id, **{**healthy, **fields})


BROKERS = tuple(broker(each) for each in (1, 2, 3))


def partition(index: int = 0, **fields: Any) -> Partition:
    """A partition of three replicas in sync, with the records 0 to 99."""
    brokers = (1, 2, 3)
    replicas = fields.pop("replicas", brokers[index % 3 :] + brokers[: index % 3])
    healthy: dict[str, Any] = {
        "leader": replicas[0],
        "isr": replicas,
        "begin": 0,
        "end": 100,
        "newest_ms": NOW_MS - 1_000,
        "size": 1_000,
    }
    return Partition(index, replicas=replicas, **{**healthy, **fields})


def topic(name: str = "orders", *partitions: Partition, **fields: Any) -> Topic:
    """A topic with min.insync.replicas 2; of three partitions unless some are given."""
    config = {"min.insync.replicas": "2", **fields.pop("config", {})}
    return Topic(
        name, partitions or tuple(partition(each) for each in range(3)), config=config, **fields
    )


def group(name: str = "billing", **fields: Any) -> Group:
    """A group whose one member has read all of orders."""
    healthy: dict[str, Any] = {
        "state": "Stable",
        "members": (READER,),
        "committed": {("orders", index): 100 for index in range(3)},
    }
    return Group(name, **{**healthy, **fields})


def fleet(*topics: Topic, **fields: Any) -> Snapshot:
    """Three brokers in three zones, with these topics, or with orders."""
    given = topics or (topic(),)
    healthy: dict[str, Any] = {
        "brokers": BROKERS,
        "groups": (group(),),
    }
    return Snapshot(
        "c1", NOW_MS, topics={each.name: each for each in given}, **{**healthy, **fields}
    )


def found(check: Check, snapshot: Snapshot) -> list[tuple[str, str]]:
    """Subject and sentence of each finding. A healthy fleet has none."""
    assert check.findings(fleet()) == []
    return [(each.subject, each.sentence) for each in check.findings(snapshot)]


def remedies(check: Check, snapshot: Snapshot) -> list[str]:
    return [each.remedy for each in check.findings(snapshot)]


def sick_fleets() -> list[Snapshot]:
    """Fleets that together have every finding there is."""
    single = partition(replicas=(1,))
    old, huge = NOW_MS - 41 * 86_400_000, 9 * GIB
    plain = Batch(idempotent=False, compressed=False, records=1, size=50_000)
    late = topic("orders", partition(0, begin=50, hour_old=90), partition(1), partition(2))
    return [
        fleet(
            topic("a", partition(leader=NO_LEADER)),
            topic("b", partition(isr=(1,))),
            topic("c", config={"min.insync.replicas": "3"}),
            topic("d", config={"unclean.leader.election.enable": "true"}),
            topic("e", *(partition(each, replicas=(1, 2, 3)) for each in range(100))),
            topic("f", config={"min.insync.replicas": "1", "flush.messages": "1"}),
            topic("g", single),
            topic("__consumer_offsets", single, internal=True),
            topic("h", partition(newest_ms=old)),
            topic("i", *(partition(each, size=1 if each else huge) for each in range(3))),
            topic("j", partition(batch=plain)),
            brokers=(
                broker(1, zone=None, config={CORDONED: "*"}, apis={}, clock_ahead_s=9.0),
                broker(2, directories=(Directory("/x", "KAFKA_STORAGE_ERROR"),)),
                broker(3, directories=(Directory("/x", None, 100, 1),)),
                broker(4, zone="a", readings=Readings(9.0, 10.0, 1.0, 1e6, 1.0)),
                broker(5, zone="b", state=BrokerState.FENCED),
            ),
            level=FeatureLevel(1, 3),
        ),
        fleet(topic("k", partition(replicas=(1, 2))), brokers=(broker(1), broker(2))),
        fleet(topic("l", partition(replicas=(1, 4, 2))), brokers=(*BROKERS, broker(4, zone="a"))),
        fleet(
            late,
            groups=(
                group("an old one", state="Empty", committed={("orders", 0): 60}),
                group("b", committed={("orders", 0): 40, ("orders", 1): 999}),
                group("c", members=(READER, Member("spare", "/10.0.0.2", {}))),
            ),
        ),
    ]
