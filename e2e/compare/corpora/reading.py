"""Metadata, ListOffsets, OffsetForLeaderEpoch, DescribeTopicPartitions: what a client learns before it reads and writes."""

from typing import Final

from logfleet.records.compression import Codec
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpora.fetch import filled
from e2e.compare.corpus import Corpus
from e2e.compare.side import MadeTopic, Side

CORPUS: Final = Corpus("reading")
UNKNOWN_ID: Final = b"unknown-unknown-"
BAD_NAMES: Final = ("", ".", "..", "no name!", "x" * 249, "x" * 250, "ä", "a/b")
LONG_MAX: Final = 2**63 - 1
PATIENCE: Final = 200


# --- Metadata


@CORPUS.versions("Metadata")
def metadata_of_some_all_and_no_topics(side: Side, version: int) -> None:
    topic = side.topic(partitions=3)
    side.ask(r.metadata(topic.name), version)
    side.ask(r.metadata(topic.name, topic.name), version)
    side.ask(r.metadata(), version)
    if version:
        side.ask(m.MetadataRequest(topics=None), version)


@CORPUS.versions("Metadata", only=range(4, 14))
def metadata_of_topics_that_are_not_there(side: Side, version: int) -> None:
    for name in (f"{side.prefix}none", *BAD_NAMES):
        side.ask(r.metadata(name, allow_auto_topic_creation=False), version)


@CORPUS.versions("Metadata", only=(0, 3, 4, 9, 13))
def metadata_creates_topics(side: Side, version: int) -> None:
    name = side.own_name("made")
    for _ in range(PATIENCE):  # whether it is there at once is a matter of speed
        if side.get(r.metadata(name), version).topics[0].error_code == 0:
            break
    side.await_changes()
    side.ask(r.metadata(name), version)
    for bad in BAD_NAMES:
        side.ask(r.metadata(bad), version)


@CORPUS.versions("Metadata", only=(8, 9, 10, 11, 13))
def what_may_be_done(side: Side, version: int) -> None:
    topic = side.topic()
    for cluster, topics in ((True, False), (False, True), (True, True)):
        request = r.metadata(
            topic.name,
            include_cluster_authorized_operations=cluster,
            include_topic_authorized_operations=topics,
        )
        side.ask(request, version)


@CORPUS.versions("Metadata", only=(10, 11, 12, 13))
def metadata_by_id(side: Side, version: int) -> None:
    topic = side.topic()
    kind = m.MetadataRequest.MetadataRequestTopic
    for topic_id, name in (
        (topic.id, None),
        (UNKNOWN_ID, None),
        (topic.id, topic.name),
        (topic.id, "other"),
        (UNKNOWN_ID, topic.name),
    ):
        side.ask(m.MetadataRequest(topics=[kind(topic_id=topic_id, name=name)]), version)


@CORPUS.case
def internal_topics(side: Side) -> None:
    for version in (1, 9, 13):
        side.ask(r.metadata("__consumer_offsets"), version)
        side.ask(r.metadata("__transaction_state", allow_auto_topic_creation=False), version)


# --- DescribeTopicPartitions, DescribeCluster


@CORPUS.case
def pages_of_partitions(side: Side) -> None:
    kind = m.DescribeTopicPartitionsRequest
    names = [side.topic(name, count).name for name, count in (("a", 3), ("b", 1), ("c", 2))]
    topics = [kind.TopicRequest(name=name) for name in (*names, f"{side.prefix}none", "no name!")]
    for limit in (1, 2, 3, 4, 100, 0, -1):
        side.ask(kind(topics=topics, response_partition_limit=limit))
        for name, index in ((names[0], 1), (names[1], 0), (names[2], 9), (names[0], -1)):
            cursor = kind.Cursor(topic_name=name, partition_index=index)
            side.ask(kind(topics=topics, response_partition_limit=limit, cursor=cursor))


@CORPUS.versions("DescribeCluster")
def clusters(side: Side, version: int) -> None:
    for endpoint in (1, 2, 3):
        for operations in (True, False):
            request = m.DescribeClusterRequest(
                endpoint_type=endpoint,
                include_cluster_authorized_operations=operations,
                include_fenced_brokers=operations,
            )
            side.ask(request, version)


# --- ListOffsets


@CORPUS.versions("ListOffsets")
def ends_and_times(side: Side, version: int) -> None:
    topic = filled(side)
    for timestamp in (*range(-8, 1), r.T0, r.T0 + 2, r.T0 + 5, r.T0 + 9, r.T0 + 10, LONG_MAX):
        for isolation in (0, 1):
            side.ask(r.list_offsets(topic, timestamp, isolation=isolation), version)


@CORPUS.versions("ListOffsets", only=(1, 7, 11))
def ends_of_an_empty_log(side: Side, version: int) -> None:
    topic = side.topic()
    for timestamp in (*range(-6, 1), r.T0):
        side.ask(r.list_offsets(topic, timestamp), version)


@CORPUS.case
def times_that_go_back(side: Side) -> None:
    topic = side.topic()
    for codec in (Codec.NONE, Codec.ZSTD):
        for times in ((5, 9, 7), (3, 3, 20), (20, 1, 20), (0, 0, 0)):
            records = [Record(b"k", b"v", r.T0 + time) for time in times]
            r.fill(side, topic, bytes(build_batch(records, codec=codec)))
    for time in range(22):
        side.ask(r.list_offsets(topic, r.T0 + time))
    side.ask(r.list_offsets(topic, -3))


@CORPUS.case
def records_without_a_time(side: Side) -> None:
    topic = side.topic()
    r.fill(side, topic, bytes(build_batch([Record(b"k", b"v", -1), Record(b"k", b"v", -1)])))
    for timestamp in (-3, 0, 1):
        side.ask(r.list_offsets(topic, timestamp))


@CORPUS.versions("ListOffsets", only=(4, 11))
def leader_epochs_of_list_offsets(side: Side, version: int) -> None:
    topic = filled(side)
    for epoch in (-2, -1, 0, 1, 99):
        side.ask(r.list_offsets(topic, -1, epoch=epoch), version)


@CORPUS.versions("ListOffsets", only=(1, 11))
def offsets_of_what_is_not_there(side: Side, version: int) -> None:
    topic = filled(side)
    for index in (1, -1):
        side.ask(r.list_offsets(topic, -1, index=index), version)
    for name in (f"{side.prefix}none", "no name!", ""):
        side.ask(r.list_offsets(MadeTopic(name, UNKNOWN_ID), -1), version)


# --- OffsetForLeaderEpoch


@CORPUS.versions("OffsetForLeaderEpoch")
def ends_of_epochs(side: Side, version: int) -> None:
    kind = m.OffsetForLeaderEpochRequest
    for topic in (filled(side), side.topic("empty")):
        for current in (-1, 0, 1):
            for epoch in (-2, -1, 0, 1, 2**31 - 1):
                row = kind.OffsetForLeaderPartition(
                    leader_epoch=epoch, current_leader_epoch=LeaderEpoch(current)
                )
                wanted = kind.OffsetForLeaderTopic(topic=topic.name, partitions=[row])
                side.ask(kind(topics=[wanted]), version)


@CORPUS.versions("OffsetForLeaderEpoch")
def epochs_of_what_is_not_there(side: Side, version: int) -> None:
    kind = m.OffsetForLeaderEpochRequest
    topic = filled(side)
    for name, index in ((topic.name, 1), (topic.name, -1), (f"{side.prefix}none", 0)):
        row = kind.OffsetForLeaderPartition(partition=index, leader_epoch=0)
        for replica in (-2, -1, 1):
            wanted = kind.OffsetForLeaderTopic(topic=name, partitions=[row])
            side.ask(kind(replica_id=replica, topics=[wanted]), version)


# --- ApiVersions


@CORPUS.versions("ApiVersions", only=(3, 4, 5))
def software_and_address(side: Side, version: int) -> None:
    kind = m.ApiVersionsRequest
    for name in ("a", "a-b.c1", "-a", "a-", "", "a b", "ä"):
        side.ask(kind(client_software_name=name, client_software_version="1"), version)
        side.ask(kind(client_software_name="a", client_software_version=name), version)
    own = side.get(m.MetadataRequest(topics=[]), 12).cluster_id
    for cluster_id in (None, own, "other"):
        for node in (-2, -1, 1, 2):
            request = kind(
                client_software_name="a",
                client_software_version="1",
                cluster_id=cluster_id,
                node_id=node,
            )
            side.ask(request, version)
