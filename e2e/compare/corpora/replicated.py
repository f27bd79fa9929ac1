"""A fleet of three while all are there: who leads, who follows, who is asked, and what follows from racks.

Source: KIP-392, KIP-455, KIP-460, KIP-951, KIP-966; ReplicaManager, Partition, ReplicationControlManager.
"""

from collections.abc import Sequence
from typing import Any, Final

from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpora.fleet_corpus import FleetCorpus
from e2e.compare.fleet_side import NODES, RACKS, FleetSide, Layout, at
from e2e.compare.side import MadeTopic

CORPUS: Final = FleetCorpus("fleet")
LED_BY_EACH: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
ON_TWO: Final = ((1, 2),)
STALE_EPOCH: Final = 1
"""Of a broker's registration: the brokers have later ones."""


def ask_each(
    side: FleetSide, request: Any, version: int | None = None, nodes: Sequence[int] = NODES
) -> None:
    for node in nodes:
        side.ask(request, version, on=at(node))


def described(*topics: MadeTopic) -> m.DescribeTopicPartitionsRequest:
    kind = m.DescribeTopicPartitionsRequest
    return kind(topics=[kind.TopicRequest(name=topic.name) for topic in topics])


def ends_of_epochs(
    topic: MadeTopic, *epochs: int, current: int = -1, replica: int = -1, index: int = 0
) -> m.OffsetForLeaderEpochRequest:
    kind = m.OffsetForLeaderEpochRequest
    rows = [
        kind.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=LeaderEpoch(current), leader_epoch=each
        )
        for each in epochs
    ]
    topics = [kind.OffsetForLeaderTopic(topic=topic.name, partitions=[row]) for row in rows[:1]]
    return kind(replica_id=replica, topics=topics)


def election(kind: int, *topics: tuple[str, Sequence[int]]) -> m.ElectLeadersRequest:
    """kind: 0 for preferred leaders, 1 for unclean ones."""
    rows = [
        m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(indexes))
        for name, indexes in topics
    ]
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=r.TIMEOUT_MS)


# --- what is told of a fleet


@CORPUS.versions("Metadata")
def metadata_of_every_broker(side: FleetSide, version: int) -> None:
    topic = side.replicated(LED_BY_EACH)
    ask_each(side, r.metadata(topic.name), version)


@CORPUS.case
def partitions_described_by_every_broker(side: FleetSide) -> None:
    topic, other = side.replicated(LED_BY_EACH), side.replicated(ON_TWO, name="u")
    ask_each(side, described(topic, other))


@CORPUS.versions("DescribeCluster")
def clusters_described_by_every_broker(side: FleetSide, version: int) -> None:
    for fenced in (False, True):
        ask_each(side, m.DescribeClusterRequest(include_fenced_brokers=fenced), version)


@CORPUS.case
def configurations_of_other_brokers(side: FleetSide) -> None:
    for name in ("1", "2", "9", "x"):
        side.ask(r.describe_configs(name, "log.cleaner.threads", kind=4))
    for name in ("2", "9"):
        side.ask(r.alter(name, ("log.cleaner.threads", 0, "2"), kind=4, validate_only=True))


# --- topics and partitions over racks


@CORPUS.versions("CreateTopics", only=(2, 5, 7))
def replication_factors(side: FleetSide, version: int) -> None:
    for replicas in (-1, 1, 2, 3, 4, 0, 32767):
        for partitions in (-1, 1, 3):
            name = side.own_name(f"t{partitions}x{replicas}")
            topic = r.creatable(name, partitions, replicas)
            side.ask(r.create(topic, validate_only=True), version)


@CORPUS.case
def replicas_are_spread_over_racks(side: FleetSide) -> None:
    """Where they are is up to the broker. With fewer than three, Kafka's are not even."""
    for partitions, replicas in ((3, 3), (6, 3), (6, 2)):
        name = side.own_name(f"t{partitions}x{replicas}")
        side.ask(r.create(r.creatable(name, partitions, replicas)))
        side.await_changes()
        (row,) = side.get(r.metadata(name)).topics
        side.note("racks of each", [len(set(each.replica_nodes)) for each in row.partitions])
        if replicas == len(NODES):
            leaders = [each.replica_nodes[0] for each in row.partitions]
            side.note("preferred of each broker", sorted(leaders.count(node) for node in NODES))


@CORPUS.versions("CreateTopics", only=(2, 7))
def assignments_over_racks(side: FleetSide, version: int) -> None:
    layouts: list[Layout] = [
        ((1, 2, 3),),
        ((3, 2, 1), (1, 2, 3)),
        ((1, 2), (2, 3)),
        ((1, 2), (2,)),
        ((1, 2), (1, 2, 3)),
        ((1, 1, 2),),
        ((1, 2, 9),),
        ((1, 2, -1),),
        ((1, 2, 3, 4),),
    ]
    kind = m.CreateTopicsRequest.CreatableReplicaAssignment
    for number, layout in enumerate(layouts):
        rows = [kind(partition_index=i, broker_ids=list(ids)) for i, ids in enumerate(layout)]
        name = side.own_name(f"t{number}")
        topic = r.creatable(name, -1, -1, assignments=rows)
        side.ask(r.create(topic, validate_only=True), version)
        side.ask(r.create(topic), version)
        side.await_changes()
        side.ask(r.metadata(name, allow_auto_topic_creation=False), 12)


@CORPUS.versions("CreatePartitions", only=(0, 3))
def more_partitions_over_racks(side: FleetSide, version: int) -> None:
    topic = side.replicated(((1, 2),))
    kind = m.CreatePartitionsRequest
    for count, layout in (
        (2, ((2, 3),)),
        (3, ((3, 1), (1, 2))),
        (3, ((3, 1),)),
        (3, ((3,),)),
        (3, ((3, 1, 2),)),
        (3, ((3, 3),)),
        (3, ((3, 9),)),
        (3, ((),)),
        (3, ((1, 3), (3,))),
        (2, ()),
        (1, ()),
    ):
        rows = [kind.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in layout]
        asked = kind.CreatePartitionsTopic(name=topic.name, count=count, assignments=rows or None)
        for check in (True, False):
            request = kind(topics=[asked], timeout_ms=r.TIMEOUT_MS, validate_only=check)
            side.ask(request, version)
            side.await_changes()
    side.ask(r.metadata(topic.name), 12)


# --- leaders and others


@CORPUS.versions("Produce", only=(3, 9, 10, 12, 13))
def producing_to_who_does_not_lead(side: FleetSide, version: int) -> None:
    topic = side.replicated(ON_TWO)
    for acks in (-1, 1, 2):
        ask_each(side, r.produce(topic, r.batch(), acks=acks), version)
    ask_each(side, r.produce(topic, r.batch(), index=7), version)


@CORPUS.case
def min_insync_replicas(side: FleetSide) -> None:
    """More than there are replicas is as many as there are (KIP-966: the effective one)."""
    for least in ("1", "2", "3", "9"):
        topic = side.replicated(ON_TWO, {"min.insync.replicas": least}, f"t{least}")
        for acks in (-1, 1):
            side.ask(r.produce(topic, r.batch(), acks=acks))


@CORPUS.versions("Fetch")
def consumers_at_every_broker(side: FleetSide, version: int) -> None:
    """The third has no replica. Versions since 11 read from followers (KIP-392)."""
    topic = side.replicated(ON_TWO)
    side.fill(topic, r.batch(3), r.batch(2, first=3))
    side.await_read(topic, 5, 1, 2)
    for offset in (0, 3, 5, 6, -1):
        ask_each(side, r.fetch(topic, offset), version)
    for epoch in (0, 1):
        ask_each(side, r.fetch(topic, current_leader_epoch=epoch), version)


@CORPUS.versions("Fetch", only=(11, 12, 13, 18))
def consumers_of_every_rack(side: FleetSide, version: int) -> None:
    topic = side.replicated()
    side.fill(topic, r.batch(3))
    side.await_read(topic, 3, *NODES)
    for rack in (*RACKS, "", "z"):
        for offset in (0, 3, 4):
            ask_each(side, r.fetch_rows(topic, [r.fetch_row(offset)], rack_id=rack), version)


@CORPUS.versions("Fetch", only=(11, 13, 18))
def racks_in_sessions(side: FleetSide, version: int) -> None:
    topic = side.replicated()
    side.fill(topic, r.batch(3))
    side.await_read(topic, 3, *NODES)
    for node in (1, 2):
        rows = [r.fetch_row()]
        request = r.fetch_rows(topic, rows, session_epoch=0, rack_id="b")
        session = side.ask(request, version, on=at(node)).session_id
        for epoch in (1, 2):
            again = m.FetchRequest(
                max_bytes=1 << 20, session_id=session, session_epoch=epoch, rack_id="b"
            )
            side.ask(again, version, on=at(node))


@CORPUS.versions("Fetch")
def followers_that_fetch(side: FleetSide, version: int) -> None:
    """At the log's end, so that they say no more than is so. 3 has no replica, 9 is no broker."""
    topic = side.replicated(ON_TWO)
    side.fill(topic, r.batch(3))
    side.await_read(topic, 3, 1, 2)
    for replica in (2, 3, 9, 1, -2):
        for offset in (3, 9):
            request = r.fetch_rows(topic, [r.fetch_row(offset, log_start_offset=0)])
            side.ask(_of(request, replica), version)
    for node in (2, 3):
        side.ask(_of(r.fetch(topic, 3), 1), version, on=at(node))


@CORPUS.versions("Fetch", only=(12, 15, 18))
def epochs_of_followers(side: FleetSide, version: int) -> None:
    topic = side.replicated(ON_TWO)
    side.fill(topic, r.batch(3))
    for replica in (2, 3):
        for current in (-1, 0, 1):
            for last in (-1, 0, 1):
                row = r.fetch_row(
                    3, current_leader_epoch=current, last_fetched_epoch=last, log_start_offset=0
                )
                side.ask(_of(r.fetch_rows(topic, [row]), replica), version)
    for current in (0, 5):
        row = r.fetch_row(3, current_leader_epoch=current, log_start_offset=0)
        side.ask(_of(r.fetch_rows(topic, [row]), 2, STALE_EPOCH), version)


def _of(request: m.FetchRequest, replica: int, epoch: int = -1) -> m.FetchRequest:
    """As a follower sends it: the old field and the new one (KIP-903)."""
    request.replica_id = replica
    request.replica_state = m.FetchRequest.ReplicaState(
        replica_id=replica, replica_epoch=BrokerEpoch(epoch)
    )
    return request


@CORPUS.versions("ListOffsets", only=(1, 4, 7, 11))
def offsets_at_every_broker(side: FleetSide, version: int) -> None:
    topic = side.replicated(ON_TWO)
    side.fill(topic, r.batch(3))
    side.await_read(topic, 3, 1, 2)
    for timestamp in (-1, -2, -3, r.T0 + 1):
        for replica in (-1, -2, 2, 3, 9):
            request = r.list_offsets(topic, timestamp)
            request.replica_id = replica
            ask_each(side, request, version)
    for epoch in (0, 1):
        ask_each(side, r.list_offsets(topic, -1, epoch=epoch), version)


@CORPUS.versions("OffsetForLeaderEpoch")
def ends_of_epochs_at_every_broker(side: FleetSide, version: int) -> None:
    topic = side.replicated(ON_TWO)
    side.fill(topic, r.batch(3))
    for replica in (-1, -2, 2, 3):
        for current in (-1, 0, 1):
            for epoch in (-1, 0, 1):
                request = ends_of_epochs(topic, epoch, current=current, replica=replica)
                ask_each(side, request, version)


@CORPUS.versions("DeleteRecords")
def deleting_records_at_every_broker(side: FleetSide, version: int) -> None:
    topic = side.replicated(ON_TWO)
    side.fill(topic, r.batch(3), r.batch(2, first=3))
    for offset in (3, 9, -1):
        ask_each(side, r.delete_records(topic.name, offset), version, (2, 3, 1))


# --- elections


@CORPUS.versions("ElectLeaders")
def leaders_who_lead_already(side: FleetSide, version: int) -> None:
    topic = side.replicated(LED_BY_EACH)
    for kind in (0, 1) if version else (0,):
        side.ask(election(kind, (topic.name, [0, 1, 2])), version)
        side.ask(election(kind, (topic.name, [0]), (f"{side.prefix}none", [0])), version)
        side.ask(election(kind, (topic.name, [3, -1])), version, on=at(3))
        side.ask(election(kind, (topic.name, [])), version)
    if version:
        side.ask(election(2, (topic.name, [0])), version)
    everything = m.ElectLeadersRequest(topic_partitions=None, timeout_ms=r.TIMEOUT_MS)
    side.ask(everything, version)
