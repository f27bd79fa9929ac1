"""What a snapshot is made of: answers that are there, and answers that are missing."""

import msgspec
from logfleet.checks.gathering.assembly import Answers, snapshot_of
from logfleet.checks.snapshot import BrokerState, Directory, Group
from logfleet.client.admin import ClusterDescription
from logfleet.client.log_admin import LogDirDescription, LogSize
from logfleet.client.metadata import Node, PartitionInfo, Topic
from logfleet.client.offsets import OffsetAt, TopicPartition
from logfleet.telemetry.flows import Flow

KEYS = [TopicPartition("t", index) for index in range(3)]
NODES = (Node(1, "h1", 9092, "a"), Node(2, "h2", 9092, None))
INFO = tuple(PartitionInfo(index, 1, 0, (1, 2, 3), (1, 2)) for index in range(3))
TOPIC = Topic("t", bytes(16), internal=False, partitions=INFO)


def at(offset: int, timestamp: int = -1) -> OffsetAt:
    return OffsetAt(offset, timestamp, 0)


ANSWERS = Answers(
    now_ms=0,
    begins=dict.fromkeys(KEYS, at(0)),
    ends={KEYS[0]: at(10), KEYS[1]: at(20), KEYS[2]: at(0)},
)


def test_brokers_that_have_replicas_and_are_not_registered_are_part_of_the_fleet() -> None:
    found = ClusterDescription("c", 1, NODES, frozenset({2}))
    fleet = snapshot_of(found, [TOPIC], ANSWERS, [])
    assert [(each.id, each.zone, each.state) for each in fleet.brokers] == [
        (1, "a", BrokerState.ACTIVE),
        (2, None, BrokerState.FENCED),
        (3, None, BrokerState.UNREGISTERED),
    ]
    assert fleet.topics["t"].config is None


def test_directories_without_a_size_have_none() -> None:
    log = LogSize(KEYS[0], 7)
    disks = {
        1: [LogDirDescription(1, "/a", None, 100, 0, (log,))],
        2: [LogDirDescription(2, "/b", "KAFKA_STORAGE_ERROR", -1, -1, (LogSize(KEYS[0], 9),))],
    }
    answers = msgspec.structs.replace(ANSWERS, disks=disks)
    fleet = snapshot_of(ClusterDescription("c", 1, NODES), [TOPIC], answers, [])
    assert [each.directories for each in fleet.brokers[:2]] == [
        (Directory("/a", None, 100, 0),),
        (Directory("/b", "KAFKA_STORAGE_ERROR"),),
    ]
    assert [each.size for each in fleet.topics["t"].partitions] == [9, None, None]


def test_partitions_that_a_group_has_not_read_are_those_that_lag() -> None:
    groups = [
        Group("a", "Empty", (), {("t", 0): 10, ("t", 1): 19, ("gone", 0): 0}),
        Group("b", "Empty", (), None),
    ]
    assert msgspec.structs.replace(ANSWERS, groups=groups).lagging() == [KEYS[1]]


def test_the_busiest_partitions_are_those_with_traffic_then_the_largest() -> None:
    disks = {1: [LogDirDescription(1, "/a", None, 1, 1, (LogSize(KEYS[1], 900),))]}
    assert list(msgspec.structs.replace(ANSWERS, disks=disks).busiest(9)) == [KEYS[1], KEYS[0]]
    flows = {KEYS[0]: Flow("t", 0, 5.0, 0.0)}
    busy = msgspec.structs.replace(ANSWERS, disks=disks, flows=flows)
    assert busy.busiest(1) == {KEYS[0]: 10}


def test_the_first_younger_record_is_the_end_if_all_are_older() -> None:
    answers = msgspec.structs.replace(ANSWERS, hour_old={KEYS[0]: at(-1), KEYS[1]: at(4)})
    fleet = snapshot_of(ClusterDescription("c", 1, NODES), [TOPIC], answers, [])
    assert [each.hour_old for each in fleet.topics["t"].partitions] == [10, 4, None]
