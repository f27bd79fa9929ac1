"""Partitions that move to other brokers (KIP-455, KIP-860): to their end while all brokers are there, and held up while one is away.

Source: ReplicationControlManager.alterPartitionReassignments, PartitionReassignmentReplicas.
"""

from collections.abc import Sequence
from typing import Final

from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpora.fleet_corpus import FleetCorpus
from e2e.compare.corpora.replicated import ask_each, described
from e2e.compare.fleet_side import FleetSide, metadata_of
from e2e.compare.side import MadeTopic

DONE: Final = FleetCorpus("fleet")
HELD: Final = FleetCorpus("fleet")
AWAY: Final = 3
"""The broker that is gone while moves are held up."""

Wanted = tuple[str, int, Sequence[int] | None]
"""Topic, index and replicas of a partition; None cancels."""


def alter(*wanted: Wanted, **fields: bool) -> m.AlterPartitionReassignmentsRequest:
    kind = m.AlterPartitionReassignmentsRequest
    topics = [
        kind.ReassignableTopic(
            name=name,
            partitions=[
                kind.ReassignablePartition(
                    partition_index=index, replicas=None if ids is None else list(ids)
                )
            ],
        )
        for name, index, ids in wanted
    ]
    return kind(topics=topics, timeout_ms=r.TIMEOUT_MS, **fields)


def listed(*topics: MadeTopic, index: int = 0) -> m.ListPartitionReassignmentsRequest:
    kind = m.ListPartitionReassignmentsRequest
    rows = [
        kind.ListPartitionReassignmentsTopics(name=topic.name, partition_indexes=[index])
        for topic in topics
    ]
    return kind(topics=rows, timeout_ms=r.TIMEOUT_MS)


def show(side: FleetSide, topic: MadeTopic) -> None:
    """What is told of it while it moves, and after."""
    side.ask(listed(topic))
    for node in sorted(side.alive):
        side.await_replicas(topic, node)
    ask_each(side, described(topic), None, sorted(side.alive))
    for version in (0, 7, 12):
        ask_each(side, metadata_of(topic), version, sorted(side.alive))


def move(side: FleetSide, topic: MadeTopic, *ids: int) -> None:
    """To its end."""
    side.ask(alter((topic.name, 0, ids)))
    side.await_moved(topic, ids)
    for _ in side.patiently(
        f"the move of {topic.name} to be over"
    ):  # it ends after the last ISR write
        if not side.get_of(min(side.alive), listed(topic), 0).topics:
            break
    show(side, topic)


# --- all are there


@DONE.versions("AlterPartitionReassignments")
def moves_that_are_refused(side: FleetSide, version: int) -> None:
    topic = side.replicated(((1, 2),))
    for ids in ([], [1, 1], [9], [1, 9], [-1], [2, 3, 3], None):
        side.ask(alter((topic.name, 0, ids)), version)
    side.ask(alter((topic.name, 1, [1, 2]), ("nowhere", 0, [1]), (topic.name, -1, None)), version)
    for ids in ([1], [1, 2, 3]):
        side.ask(alter((topic.name, 0, ids), allow_replication_factor_change=False), 1)
    show(side, topic)


@DONE.case
def moves_that_end(side: FleetSide) -> None:
    topic = side.replicated(((1, 2),))
    side.fill(topic, r.batch(3))
    for ids in ((2, 3), (3, 2), (3, 2, 1), (1,), (1, 2, 3), (2, 1), (3,), (1,)):
        move(side, topic, *ids)


@DONE.versions("ListPartitionReassignments")
def moves_of_nothing(side: FleetSide, version: int) -> None:
    topic = side.replicated(((1, 2),))
    side.ask(alter((topic.name, 0, (1, 2))))
    side.ask(listed(topic), version)
    side.ask(listed(topic, index=9), version)
    side.ask(listed(topic, topic), version)
    side.ask(m.ListPartitionReassignmentsRequest(topics=[], timeout_ms=r.TIMEOUT_MS), version)


# --- one is away, so that nothing that it has to take ends


@HELD.case
def moves_that_wait(side: FleetSide) -> None:
    topic = side.replicated(((1, 2),))
    side.fill(topic, r.batch(3))
    side.ask(alter((topic.name, 0, (AWAY, 1))))
    show(side, topic)
    side.ask(alter((topic.name, 0, (AWAY, 1))))
    side.ask(alter((topic.name, 0, None)))
    show(side, topic)
    side.ask(alter((topic.name, 0, None)))


@HELD.case
def moves_that_grow_and_wait(side: FleetSide) -> None:
    topic = side.replicated(((1,), (2,)), {"min.insync.replicas": "1"})
    side.ask(alter((topic.name, 0, (1, AWAY))))
    show(side, topic)
    side.ask(alter((topic.name, 0, None)))
    show(side, topic)
    side.ask(alter((topic.name, 1, (AWAY,))))
    show(side, topic)


@HELD.case
def moves_that_are_moved(side: FleetSide) -> None:
    topic = side.replicated(((1, 2),))
    side.ask(alter((topic.name, 0, (AWAY, 1))))
    side.ask(alter((topic.name, 0, (2, 1))))
    show(side, topic)
