"""Committed offsets: who may commit what, and what is told of it. Source: OffsetMetadataManager, KafkaApis."""

from typing import Final

from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("offsets")
UNKNOWN_ID: Final = b"unknown-unknown-"


def group_of(side: Side) -> str:
    return f"{side.prefix}group"


@CORPUS.versions("OffsetCommit")
def simple_consumers(side: Side, version: int) -> None:
    """Nobody is in the group: it comes with the offset."""
    topic = side.topic(partitions=2)
    group = group_of(side)
    for offset in (5, 0, -1, -2, 2**62):
        side.ask(r.commit(group, topic, offset), version)
        side.ask(r.committed(group, topic), 9)
    for member, generation in (("x", -1), ("", 0), ("x", 0), ("", 7), ("", -2)):
        side.ask(r.commit(group, topic, 9, member=member, generation=generation), version)
        other = f"{group}-{member}{generation}"
        side.ask(r.commit(other, topic, 9, member=member, generation=generation), version)
    side.ask(r.committed(group, topic), 9)
    side.ask(m.DescribeGroupsRequest(groups=[group]), 5)


@CORPUS.versions("OffsetCommit", only=(2, 5, 9, 10))
def members_and_others(side: Side, version: int) -> None:
    topic = side.topic()
    group = group_of(side)
    member, generation = r.joined(side, group)
    for who, which in (
        (member, generation),
        (member, generation + 1),
        (member, generation - 1),
        (member, -1),
        ("", -1),
        ("unknown", -1),
        ("unknown", generation),
        ("", generation),
    ):
        side.ask(r.commit(group, topic, 1, member=who, generation=which), version)
    side.ask(r.committed(group, topic), 9)


@CORPUS.versions("OffsetCommit", only=(2, 9, 10))
def what_is_committed(side: Side, version: int) -> None:
    topic = side.topic()
    group = group_of(side)
    for metadata in (None, "", "x" * 4096, "x" * 4097, "ä" * 4096):
        side.ask(r.commit(group, topic, 1, metadata=metadata), version)
        side.ask(r.committed(group, topic), 9)
    for epoch in (-1, 0, 7):
        request = r.commit(group, topic, 2)
        request.topics[0].partitions[0].committed_leader_epoch = epoch
        side.ask(request, version)
        side.ask(r.committed(group, topic), 9)


@CORPUS.versions("OffsetCommit", only=(2, 9, 10))
def topics_that_are_not_there(side: Side, version: int) -> None:
    topic = side.topic()
    group = group_of(side)
    for index in (1, -1):
        side.ask(r.commit(group, topic, 1, index=index), version)
    for name, topic_id in (
        (f"{side.prefix}none", UNKNOWN_ID),
        ("no name!", bytes(16)),
        ("", UNKNOWN_ID),
    ):
        side.ask(r.commit(group, MadeTopic(name, topic_id), 1), version)
    side.ask(r.commit("", topic, 1), version)
    side.ask(m.OffsetCommitRequest(group_id=group), version)
    mixed = r.commit(group, topic, 4)
    kind = m.OffsetCommitRequest
    row = kind.OffsetCommitRequestPartition(partition_index=3, committed_offset=1)
    mixed.topics[0].partitions.append(row)
    unknown = kind.OffsetCommitRequestTopic(
        name=f"{side.prefix}none", topic_id=UNKNOWN_ID, partitions=[row]
    )
    mixed.topics.append(unknown)
    side.ask(mixed, version)
    side.ask(r.committed(group, topic, indexes=(0, 3)), 9)


@CORPUS.versions("OffsetFetch")
def fetching(side: Side, version: int) -> None:
    topic = side.topic(partitions=3)
    group = group_of(side)
    for index in (0, 2):
        side.get(r.commit(group, topic, 7 + index, index=index), 9)
    side.ask(r.committed(group, topic, indexes=(0, 1, 2, 3)), version)
    side.ask(r.committed(f"{group}-none", topic), version)
    side.ask(r.committed("", topic), version)
    if version >= 2:
        side.ask(r.committed(group, None), version)
        side.ask(r.committed(f"{group}-none", None), version)
    for name, topic_id in ((f"{side.prefix}none", UNKNOWN_ID), ("no name!", bytes(16))):
        side.ask(r.committed(group, MadeTopic(name, topic_id)), version)
    if version >= 7:
        request = r.committed(group, topic)
        request.require_stable = True
        side.ask(request, version)


@CORPUS.versions("OffsetFetch", only=(8, 9, 10))
def several_groups(side: Side, version: int) -> None:
    topic = side.topic()
    groups = [f"{group_of(side)}-{number}" for number in range(3)]
    for number, group in enumerate(groups[:2]):
        side.get(r.commit(group, topic, number), 9)
    rows = [r.committed(group, topic).groups[0] for group in groups]
    rows[1].topics = None
    side.ask(m.OffsetFetchRequest(groups=rows), version)
    side.ask(m.OffsetFetchRequest(groups=[]), version)
    side.ask(m.OffsetFetchRequest(groups=[rows[0], rows[0]]), version)


@CORPUS.versions("OffsetFetch", only=(9, 10))
def fetching_as_a_member(side: Side, version: int) -> None:
    topic = side.topic()
    group = group_of(side)
    member, generation = r.joined(side, group)
    side.get(r.commit(group, topic, 3, member=member, generation=generation), 9)
    for who, epoch in ((None, -1), (member, generation), (member, 99), ("unknown", generation)):
        side.ask(r.committed(group, topic, member_id=who, member_epoch=epoch), version)


@CORPUS.case
def offsets_of_a_deleted_topic(side: Side) -> None:
    topic = side.topic()
    group = group_of(side)
    side.ask(r.commit(group, topic, 3), 9)
    side.get(r.delete(topic.name))
    side.await_changes()
    again = side.topic()
    side.ask(r.committed(group, again), 10)
    side.ask(r.commit(group, topic, 3), 10)


@CORPUS.case
def offsets_outlive_the_members(side: Side) -> None:
    topic = side.topic()
    group = group_of(side)
    member, generation = r.joined(side, group)
    side.ask(r.commit(group, topic, 3, member=member, generation=generation), 9)
    side.ask(r.leave(group, member))
    side.ask(r.committed(group, topic), 9)
    side.ask(r.commit(group, topic, 4), 9)
    r.joined(side, group)
    side.ask(r.commit(group, topic, 5), 9)
    side.ask(r.committed(group, topic), 9)
