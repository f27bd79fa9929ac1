"""Offsets that are committed with transactions: by whom, in every version, and what consumers see of them before the end and after.

Source: GroupCoordinatorService, OffsetMetadataManager, CoordinatorPartitionWriter, KafkaApis; KIP-98, KIP-447, KIP-890, KIP-1319.
"""

from collections.abc import Iterator
from typing import Any, Final

from logfleet.wire import messages as m

from e2e.compare import producers as p
from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.producers import UNKNOWN_PRODUCER, Who
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("transactions-offsets")
MEMBERS_SINCE: Final = 3
ADDED_SINCE: Final = 5
"""Version of TxnOffsetCommit that adds the group to the transaction (KIP-890)."""
STABLE_SINCE: Final = 7
"""Version of OffsetFetch."""
UNKNOWN_ID: Final = b"unknown-unknown-"


class Copier:
    """A producer that commits offsets of one group and topic. version: of TxnOffsetCommit."""

    def __init__(self, side: Side, topic: MadeTopic, version: int, name: str = "id") -> None:
        self.side = side
        self.topic = topic
        self.version = version
        self.group = f"{side.prefix}group"
        self.who = p.initialised(side, name, 4 if self.adds else 5)

    @property
    def adds(self) -> bool:
        """Whether it adds the group itself."""
        return self.version < ADDED_SINCE

    def commit(self, offsets: dict[int, int], who: Who | None = None, **fields: Any) -> None:
        """fields: of the request, those of members only in versions that have them."""
        rows = {(self.topic.name, self.topic.id): offsets}
        fields = {"group": self.group, **fields}
        request = p.commit_offsets(who or self.who, offsets=rows, **fields)
        self.side.settle(request, self.version)

    def stage(self, offsets: dict[int, int], **fields: Any) -> None:
        if self.adds:
            self.side.settle(p.add_group(self.who, self.group), 3)
        self.commit(offsets, **fields)

    def end(self, *, commit: bool = True) -> None:
        self.who = p.ended(self.side, self.who, 4 if self.adds else 5, commit=commit)
        self.fetch()

    def fetch(self) -> None:
        """All that there is, and two partitions; with open transactions and without."""
        for stable in (True, False):
            for topic in (self.topic, None):
                request = r.committed(self.group, topic, indexes=(0, 1))
                request.require_stable = stable
                self.side.ask(request, 8)


@CORPUS.versions("TxnOffsetCommit")
def committing_alone(side: Side, version: int) -> None:
    """Nobody is in the group."""
    topic = side.topic(partitions=2)
    copier = Copier(side, topic, version)
    who = copier.who
    if copier.adds:
        copier.commit({0: 5})
        side.settle(p.add_group(who, copier.group), 3)
    copier.commit({0: 1, 7: 1})
    for named in (
        {(f"{side.prefix}none", UNKNOWN_ID): {0: 1}},
        {(f"{side.prefix}none", UNKNOWN_ID): {0: 1}, (topic.name, topic.id): {0: 1}},
        {},
    ):
        side.settle(p.commit_offsets(who, copier.group, named), version)
    for metadata in ("m" * 5000, "", None):
        copier.commit({1: 1}, metadata=metadata)
    copier.commit({0: -1})
    copier.commit({0: 1}, group="")
    for each in (
        who._replace(id=""),
        who._replace(id=f"{side.prefix}none"),
        who._replace(producer_id=UNKNOWN_PRODUCER),
        who.of_epoch(who.epoch + 1),
    ):
        copier.commit({0: 1}, each)
    if version >= MEMBERS_SINCE:
        copier.commit({0: 1}, group=f"{side.prefix}none", generation_id_or_member_epoch=3)
        copier.commit({0: 1}, generation_id_or_member_epoch=3)
        copier.commit({0: 1}, member_id="x")
        copier.commit({0: 1}, group_instance_id="i")
    copier.commit({0: 5})
    copier.fetch()
    side.ask(r.commit(copier.group, topic, 6), 8)
    copier.fetch()
    copier.end()
    if copier.adds:
        copier.commit({0: 5})


@CORPUS.versions("TxnOffsetCommit")
def ends_of_several(side: Side, version: int) -> None:
    """Producers of one group, and what else happens to the group meanwhile."""
    topic = side.topic(partitions=2)
    one, other = (Copier(side, topic, version, name) for name in ("one", "other"))
    one.stage({0: 7, 1: 7})
    other.stage({0: 8})
    other.end()
    one.end()
    one.stage({0: 9, 1: 9})
    kind = m.OffsetDeleteRequest
    rows = [kind.OffsetDeleteRequestPartition(partition_index=0)]
    gone = [kind.OffsetDeleteRequestTopic(name=topic.name, partitions=rows)]
    side.ask(kind(group_id=one.group, topics=gone))
    one.fetch()
    one.end()
    one.stage({0: 10})
    side.ask(m.DeleteGroupsRequest(groups_names=[one.group]))
    one.fetch()
    side.ask(m.DescribeGroupsRequest(groups=[one.group]), 5)
    one.end()
    one.stage({0: 11})
    one.end(commit=False)
    side.ask(m.DeleteGroupsRequest(groups_names=[one.group]))


@CORPUS.versions("TxnOffsetCommit")
def members(side: Side, version: int) -> None:
    topic = side.topic(partitions=2)
    copier = Copier(side, topic, version)
    member, generation = r.joined(side, copier.group)
    copier.stage({0: 12})
    if version >= MEMBERS_SINCE:
        for who, which in _memberships(member, generation):
            copier.commit({0: 1}, member_id=who, generation_id_or_member_epoch=which)
        own: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation}
        copier.commit({1: 13}, **own)
        copier.commit({1: 13}, group_instance_id="i", **own)
    copier.fetch()
    copier.commit({0: 1}, copier.who.of_epoch(copier.who.epoch - 1))
    copier.end()


def _memberships(member: str, generation: int) -> Iterator[tuple[str, int]]:
    for who in (member, "", "x"):
        for which in (generation - 1, generation + 1, generation, -1):
            if (who, which) != (member, generation):
                yield who, which


@CORPUS.versions("OffsetFetch", only=range(STABLE_SINCE - 1, 11))
def stable_offsets(side: Side, version: int) -> None:
    """Some partitions have offsets of an open transaction, some do not; one has both."""
    topic = side.topic(partitions=3)
    copier = Copier(side, topic, 4)
    for index in (0, 2):
        side.get(r.commit(copier.group, topic, 3, index=index))

    def fetch() -> None:
        for stable in (True, False):
            for indexes in ((0,), (1,), (2,), (0, 1, 2, 7)):
                request = r.committed(copier.group, topic, indexes=indexes)
                request.require_stable = stable
                side.ask(request, version)
            request = r.committed(copier.group, None)
            request.require_stable = stable
            side.ask(request, version)

    for commit in (False, True):
        copier.stage({0: 5, 1: 5})
        fetch()
        copier.end(commit=commit)
        fetch()


@CORPUS.case
def a_marker_of_nobody_ends_nothing(side: Side) -> None:
    """Markers from a client for a partition of offsets."""
    topic = side.topic(partitions=2)
    copier = Copier(side, topic, 4)
    copier.who = p.again(side, copier.who)
    for change, commit in ((-1, True), (0, False), (0, True)):
        copier.stage({0: 5 + change})
        who = copier.who.of_epoch(copier.who.epoch + change)
        marker = p.marker(who, {"__consumer_offsets": [0]}, commit=commit)
        side.ask(m.WriteTxnMarkersRequest(markers=[marker]))
        copier.fetch()
    copier.end()
