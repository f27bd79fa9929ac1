"""What brokers answered, and the snapshot made of it."""

from collections.abc import Mapping, Sequence

import msgspec

from logfleet.checks.snapshot import (
    Batch,
    Broker,
    BrokerState,
    Directory,
    Gap,
    Group,
    Partition,
    Readings,
    Snapshot,
    Topic,
)
from logfleet.client.admin import ClusterDescription
from logfleet.client.log_admin import LogDirDescription
from logfleet.client.metadata import PartitionInfo
from logfleet.client.metadata import Topic as ListedTopic
from logfleet.client.offsets import OffsetAt, TopicPartition
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.telemetry.flows import Flow

Offsets = Mapping[TopicPartition, OffsetAt]


class Answers(msgspec.Struct):
    """By topic name, partition or broker id; what is missing was not answered.

    hour_old, week_old: the first offset that is younger; -1 if nothing is.
    """

    now_ms: int
    configs: Mapping[str, Mapping[str, str]] | None = None
    begins: Offsets = {}
    ends: Offsets = {}
    newest: Offsets = {}
    hour_old: Offsets = {}
    week_old: Offsets = {}
    batches: Mapping[TopicPartition, Batch] = {}
    flows: Mapping[TopicPartition, Flow] = {}
    level: FeatureLevel | None = None
    apis: Mapping[int, Mapping[int, tuple[int, int]]] = {}
    broker_configs: Mapping[int, Mapping[str, str]] = {}
    disks: Mapping[int, Sequence[LogDirDescription]] = {}
    readings: Mapping[int, Readings] = {}
    clocks: Mapping[int, float] = {}
    groups: Sequence[Group] = ()

    def lagging(self) -> list[TopicPartition]:
        """Partitions of which some group has not read all."""
        committed = {
            (TopicPartition(*key), offset)
            for group in self.groups
            for key, offset in (group.committed or {}).items()
        }
        behind = {
            key for key, offset in committed if key in self.ends and offset < self.ends[key].offset
        }
        return sorted(behind)

    def busiest(self, count: int) -> dict[TopicPartition, int]:
        """Partitions with most traffic, else most bytes, that have records, and their ends."""
        sizes = self.sizes()
        filled = [
            key
            for key, end in self.ends.items()
            if key in self.begins and self.begins[key].offset < end.offset
        ]

        def activity(key: TopicPartition) -> tuple[float, int]:
            flow = self.flows.get(key)
            return (flow.bytes_in if flow is not None else 0.0), sizes.get(key, 0)

        filled.sort(key=activity, reverse=True)
        return {key: self.ends[key].offset for key in filled[:count]}

    def sizes(self) -> dict[TopicPartition, int]:
        """Bytes of each partition's largest replica."""
        found: dict[TopicPartition, int] = {}
        for described in self.disks.values():
            for directory in described:
                for log in directory.logs:
                    found[log.partition] = max(log.size, found.get(log.partition, 0))
        return found


def snapshot_of(
    found: ClusterDescription,
    topics: Sequence[ListedTopic],
    answers: Answers,
    gaps: Sequence[Gap],
) -> Snapshot:
    """The fleet, of what was answered."""
    sizes = answers.sizes()
    made = {
        topic.name: Topic(
            topic.name,
            tuple(_partition(topic.name, each, answers, sizes) for each in topic.partitions),
            topic.internal,
            None if answers.configs is None else answers.configs.get(topic.name),
        )
        for topic in topics
    }
    return Snapshot(
        found.cluster_id,
        answers.now_ms,
        _brokers(found, topics, answers),
        made,
        tuple(sorted(answers.groups, key=lambda group: group.name)),
        answers.level,
        tuple(gaps),
    )


def _brokers(
    found: ClusterDescription, topics: Sequence[ListedTopic], answers: Answers
) -> tuple[Broker, ...]:
    brokers = [
        Broker(
            node.id,
            node.rack,
            BrokerState.FENCED if node.id in found.fenced else BrokerState.ACTIVE,
            answers.broker_configs.get(node.id),
            _directories(answers.disks.get(node.id)),
            answers.apis.get(node.id),
            answers.clocks.get(node.id),
            answers.readings.get(node.id),
        )
        for node in found.brokers
    ]
    holders = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    gone = sorted(holders - {broker.id for broker in brokers})
    brokers += [Broker(each, state=BrokerState.UNREGISTERED) for each in gone]
    return tuple(sorted(brokers, key=lambda broker: broker.id))


def _directories(found: Sequence[LogDirDescription] | None) -> tuple[Directory, ...] | None:
    if found is None:
        return None
    return tuple(
        Directory(
            each.path,
            each.error,
            each.total_bytes if each.total_bytes > 0 else None,
            each.usable_bytes if each.usable_bytes >= 0 else None,
        )
        for each in found
    )


def _partition(
    topic: str, info: PartitionInfo, answers: Answers, sizes: Mapping[TopicPartition, int]
) -> Partition:
    key = TopicPartition(topic, info.index)
    begin, end, newest = (each.get(key) for each in (answers.begins, answers.ends, answers.newest))
    return Partition(
        info.index,
        info.leader,
        info.replicas,
        info.isr,
        begin.offset if begin is not None else None,
        end.offset if end is not None else None,
        newest.timestamp if newest is not None else None,
        _first_younger(key, answers.hour_old, end),
        _first_younger(key, answers.week_old, end),
        sizes.get(key),
        answers.batches.get(key),
        answers.flows.get(key),
    )


def _first_younger(key: TopicPartition, found: Offsets, end: OffsetAt | None) -> int | None:
    """The offset found, or the end if all records are older."""
    at = found.get(key)
    if at is None or end is None:
        return None
    return at.offset if at.offset >= 0 else end.offset
