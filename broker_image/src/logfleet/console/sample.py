"""What the sampler has last seen of a cluster. Pages read it and nothing else, where they can."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from logfleet.checks import Finding
from logfleet.client.admin import ClusterDescription
from logfleet.client.groups import GroupMember
from logfleet.client.metadata import Topic
from logfleet.client.offsets import TopicPartition
from logfleet.telemetry.flows import Flow

REMARKS = ("offline", "under_min_isr", "under_replicated")
UNKNOWN = -1


class Directory(msgspec.Struct, frozen=True):
    """A log directory. Bytes, UNKNOWN if its broker does not report them; error: its name."""

    broker: int
    path: str
    error: str | None
    total: int
    usable: int
    size: int
    partitions: int


class GroupSample(msgspec.Struct, frozen=True):
    """at_s: when it was described. committed: the next offset to be read, by partition."""

    name: str
    state: str
    kind: str
    at_s: float
    assignor: str = ""
    members: tuple[GroupMember, ...] = ()
    committed: dict[TopicPartition, int] = {}
    error: str | None = None


class BrokerFacts(msgspec.Struct, frozen=True):
    """From a broker's own configuration."""

    cordoned: bool
    admin_listener: str | None


class Partitions(msgspec.Struct, frozen=True):
    """Counts over all partitions, made once per sample.

    remarks: partitions by what they lack, as `PartitionInfo.remarks` names it; leads, holds:
    partitions by broker id.
    """

    count: int = 0
    remarks: Mapping[str, Sequence[TopicPartition]] = {}
    leads: Mapping[int, int] = {}
    holds: Mapping[int, int] = {}


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """begins, ends, sizes: by topic, a number for each partition, UNKNOWN where there is none.

    sizes: bytes of one copy. settings: some keys of each topic. events: as brokers send them,
    oldest first. findings: of `logfleet check`, the worst first. at_s: when each part was last
    taken. failures: by part, why the last attempt failed.
    """

    cluster: ClusterDescription | None = None
    topics: Mapping[str, Topic] = {}
    settings: Mapping[str, Mapping[str, str]] = {}
    partitions: Partitions = Partitions()
    begins: Mapping[str, Sequence[int]] = {}
    ends: Mapping[str, Sequence[int]] = {}
    sizes: Mapping[str, Sequence[int]] = {}
    directories: tuple[Directory, ...] = ()
    brokers: Mapping[int, BrokerFacts] = {}
    groups: Mapping[str, GroupSample] = {}
    flows: Mapping[TopicPartition, Flow] = {}
    events: tuple[dict[str, Any], ...] = ()
    moving: tuple[TopicPartition, ...] = ()
    findings: tuple[Finding, ...] = ()
    at_s: Mapping[str, float] = {}
    failures: Mapping[str, str] = {}

    def records(self, topic: str) -> int:
        """Offsets between begin and end: no more records than that."""
        pairs = zip(self.begins.get(topic, ()), self.ends.get(topic, ()), strict=False)
        return sum(end - begin for begin, end in pairs if end > begin >= 0)

    def size(self, topic: str) -> int:
        """Bytes of one copy of a topic; UNKNOWN if no broker reports them."""
        known = [size for size in self.sizes.get(topic, ()) if size >= 0]
        return sum(known) if known else UNKNOWN

    def lag(self, group: GroupSample) -> dict[TopicPartition, int]:
        """Records between the committed offset and the end, of partitions whose end is known."""
        lags = {}
        for key, committed in group.committed.items():
            ends = self.ends.get(key.topic, ())
            if key.partition < len(ends) and ends[key.partition] >= 0:
                lags[key] = max(0, ends[key.partition] - committed)
        return lags


def count_partitions(
    topics: Mapping[str, Topic], settings: Mapping[str, Mapping[str, str]]
) -> Partitions:
    """settings: with min.insync.replicas, 1 if it is missing."""
    leads, holds = Counter[int](), Counter[int]()
    remarks: dict[str, list[TopicPartition]] = {remark: [] for remark in REMARKS}
    count = 0
    for name, topic in topics.items():
        min_isr = int(settings.get(name, {}).get("min.insync.replicas", 1))
        for each in topic.partitions:
            count += 1
            leads[each.leader] += 1
            holds.update(each.replicas)
            if each.leader < 0 or len(each.isr) < len(each.replicas):
                for remark in each.remarks(min_isr):
                    remarks[remark].append(TopicPartition(name, each.index))
    return Partitions(count, remarks, leads, holds)
