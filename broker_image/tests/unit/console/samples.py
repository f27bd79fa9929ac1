"""A sample of a fleet, made by hand."""

from logfleet.client.admin import ClusterDescription
from logfleet.client.groups import GroupMember
from logfleet.client.metadata import Node, PartitionInfo, Topic
from logfleet.client.offsets import TopicPartition
from logfleet.console.sample import (
    BrokerFacts,
    Directory,
    GroupSample,
    Sample,
    count_partitions,
)
from msgspec.structs import replace

NOW_S = 1_700_000_000.0
EVENTS = (
    {
        "time_ms": 1_699_999_000_000,
        "by": 1,
        "number": 1,
        "kind": "election",
        "cause": "its leader left",
        "topic": "orders",
        "partition": 1,
        "facts": {"leader": [3, 2]},
    },
    {
        "time_ms": 1_699_999_990_000,
        "by": 2,
        "number": 1,
        "kind": "fenced",
        "cause": "no lease",
        "broker": 3,
    },
)


def topic(name: str, *partitions: tuple[int, tuple[int, ...]], internal: bool = False) -> Topic:
    """partitions: leader and ISR of each, whose replicas are 1, 2 and 3."""
    rows = [
        PartitionInfo(i, leader, 0, (1, 2, 3), isr) for i, (leader, isr) in enumerate(partitions)
    ]
    return Topic(name, b"\1" * 16, internal, tuple(rows))


def fleet(**changed: object) -> Sample:
    """Three brokers in zones a and b; orders has two partitions, both in sync."""
    nodes = tuple(Node(i, "h", 9090 + i, zone) for i, zone in ((1, "a"), (2, "b"), (3, "a")))
    sample = Sample(
        cluster=ClusterDescription("c-1", 1, nodes),
        topics={
            "orders": topic("orders", (1, (1, 2, 3)), (2, (1, 2, 3))),
            "__offsets": topic("__offsets", (3, (1, 2, 3)), internal=True),
        },
        settings={
            "orders": {
                "min.insync.replicas": "2",
                "cleanup.policy": "delete",
                "retention.ms": "604800000",
            }
        },
        begins={"orders": [10, 0]},
        ends={"orders": [110, 40]},
        sizes={"orders": [4096, 1024]},
        directories=(
            Directory(1, "/d", None, 1000, 100, 500, 2),
            Directory(2, "/d", None, -1, -1, 0, 0),
        ),
        brokers={1: BrokerFacts(False, "127.0.0.1:9644"), 2: BrokerFacts(True, None)},
        groups={
            "billing": GroupSample(
                "billing",
                "Stable",
                "classic",
                NOW_S,
                "range",
                (GroupMember("m-1", None, "app", "/10.0.0.1", {"orders": [0]}),),
                {
                    TopicPartition("orders", 0): 100,
                    TopicPartition("orders", 1): 40,
                    TopicPartition("gone", 0): 7,
                },
            )
        },
        events=EVENTS,
    )
    sample = replace(sample, **changed)
    return replace(sample, partitions=count_partitions(sample.topics, sample.settings))
