"""A fleet that loses brokers 3 (stopped in order) and 2 (killed), gets them back, and has one that falls silent.

Topics are made while all are there, so that every stage shows the same partitions. Source: KIP-966, KIP-320, KIP-460; ReplicationControlManager,
PartitionChangeBuilder, Partition.
"""

from typing import Final

from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpora.fleet_corpus import FleetCorpus
from e2e.compare.corpora.replicated import (
    LED_BY_EACH,
    ask_each,
    described,
    election,
    ends_of_epochs,
)
from e2e.compare.fleet_side import NODES, RACKS, FleetSide, Layout, at
from e2e.compare.side import MadeTopic

ONE_AWAY: Final = FleetCorpus("fleet")
TWO_AWAY: Final = FleetCorpus("fleet")
BACK: Final = FleetCorpus("fleet")
SILENT: Final = FleetCorpus("fleet")
TWO_AT_LEAST: Final = {"min.insync.replicas": "2"}
KEPT: Final[dict[str, tuple[Layout, dict[str, str]]]] = {
    "spread": (LED_BY_EACH, TWO_AT_LEAST),
    "strict": (((1, 3),), TWO_AT_LEAST),
    "pair": (((2, 3), (3, 2)), TWO_AT_LEAST),
    "alone": (((1,), (2,), (3,)), {}),
    "loose": (((3, 2, 1),), {}),
    "dim": (((1, 3),), TWO_AT_LEAST),
}
"""Layout and configuration. loose: has another leader in each stage. dim: nobody writes to it before the last."""
LEADERS: Final[dict[str, dict[str, list[int]]]] = {
    "one away": {
        "spread": [1, 2, 1],
        "ledger": [1, 2, 1],
        "strict": [1],
        "pair": [2, 2],
        "alone": [1, 2, -1],
        "loose": [2],
    },
    "two away": {"spread": [1, 1, 1], "pair": [-1, -1], "alone": [1, -1, -1], "loose": [1]},
    "back": {"spread": [1, 1, 1], "pair": [3, 3], "alone": [1, 2, 3], "loose": [1]},
}
SILENCE_MS: Final = 15_000
"""How long a request waits in it: longer than any broker is taken to be there."""


def make_kept(side: FleetSide) -> None:
    """Before any broker goes: three records everywhere."""
    for name, (layout, config) in KEPT.items():
        topic = side.keep(name, layout, config)
        for index, ids in enumerate(layout):
            side.fill(topic, r.batch(3), leader=ids[0], index=index)


def await_stage(side: FleetSide, stage: str) -> None:
    for name, leaders in LEADERS[stage].items():
        side.await_state(side.lasting[name], leaders)


def kept(side: FleetSide, name: str) -> MadeTopic:
    return side.lasting[name]


def ask_alive(side: FleetSide, request: object, version: int | None = None) -> None:
    ask_each(side, request, version, sorted(side.alive))


def tell_all(side: FleetSide, version: int) -> None:
    names = list(KEPT)
    ask_alive(side, r.metadata(*names, allow_auto_topic_creation=version < 4), version)


def describe_all(side: FleetSide) -> None:
    ask_alive(side, described(*(kept(side, name) for name in KEPT)))
    for version in (0, 2):
        for fenced in (False, True):
            ask_alive(side, m.DescribeClusterRequest(include_fenced_brokers=fenced), version)


def read_all(side: FleetSide) -> None:
    """Ends and records of every partition, asked of every broker that is there; records also by consumers in the racks of those that are not.

    Of others' racks a new leader knows only when their followers have fetched.
    """
    for name, (layout, _) in KEPT.items():
        topic = kept(side, name)
        for index in range(len(layout)):
            for version in (1, 11):
                ask_alive(side, r.list_offsets(topic, -1, index=index), version)
            for version in (4, 12, 18):
                ask_alive(side, r.fetch(topic, index=index), version)
            for rack in (RACKS[NODES.index(node)] for node in NODES if node not in side.alive):
                row = r.fetch_row(index=index)
                ask_alive(side, r.fetch_rows(topic, [row], rack_id=rack), 13)


# --- 3 is away


@ONE_AWAY.versions("Metadata")
def metadata_with_one_away(side: FleetSide, version: int) -> None:
    tell_all(side, version)


@ONE_AWAY.case
def described_with_one_away(side: FleetSide) -> None:
    describe_all(side)


@ONE_AWAY.case
def read_with_one_away(side: FleetSide) -> None:
    read_all(side)


@ONE_AWAY.versions("Produce", only=(3, 9, 10, 13))
def produced_with_one_away(side: FleetSide, version: int) -> None:
    """strict and pair have too few in sync, alone-2 and nobody else has no leader."""
    for name, index in (("strict", 0), ("pair", 0), ("pair", 1), ("alone", 2), ("alone", 1)):
        for acks in (-1, 1):
            ask_alive(side, r.produce(kept(side, name), r.batch(), acks=acks, index=index), version)
    for index in range(3):
        side.ask(r.produce(kept(side, "spread"), r.batch(), index=index), version)


@ONE_AWAY.case
def epochs_with_one_away(side: FleetSide) -> None:
    """loose is led in a later epoch, and had three records before."""
    topic = kept(side, "loose")
    side.fill(topic, r.batch(2, first=3), leader=2)
    side.await_read(topic, 5, 1, 2)
    for epoch in range(-1, 4):
        ask_alive(side, ends_of_epochs(topic, epoch))
        side.ask(ends_of_epochs(topic, 0, current=epoch), on=at(2))
        for offset in (0, 3, 4, 5, 6):
            request = r.fetch(topic, offset, last_fetched_epoch=epoch)
            ask_alive(side, request, 13)
        ask_alive(side, r.fetch(topic, current_leader_epoch=epoch), 18)
        side.ask(r.list_offsets(topic, -1, epoch=epoch), on=at(2))
    for timestamp in (-2, -3, r.T0 + 4):
        side.ask(r.list_offsets(topic, timestamp), on=at(2))


@ONE_AWAY.versions("ElectLeaders")
def elected_with_one_away(side: FleetSide, version: int) -> None:
    for kind in (0, 1) if version else (0,):
        wanted = [("spread", [0, 1, 2]), ("alone", [0, 2]), ("pair", [1]), ("loose", [0])]
        side.ask(election(kind, *wanted), version)


@ONE_AWAY.case
def topics_made_with_one_away(side: FleetSide) -> None:
    kind = m.CreateTopicsRequest.CreatableReplicaAssignment
    for number, ids in enumerate(([3], [3, 1], [1, 2, 3], [3, 2, 1])):
        rows = [kind(partition_index=0, broker_ids=ids)]
        name = side.own_name(f"t{number}")
        side.ask(r.create(r.creatable(name, -1, -1, assignments=rows)))
        side.await_changes()
        side.ask(r.metadata(name, allow_auto_topic_creation=False), 12)
        side.ask(described(MadeTopic(name, bytes(16))))
    for replicas in (1, 2, 3, 4):
        name = side.own_name(f"x{replicas}")
        side.ask(r.create(r.creatable(name, 1, replicas), validate_only=True))


@ONE_AWAY.case
def partitions_made_with_one_away(side: FleetSide) -> None:
    topic = side.replicated(((1, 2),))
    kind = m.CreatePartitionsRequest
    for count, ids in enumerate(([3, 1], [3, 2], [1, 3]), 2):
        rows = [kind.CreatePartitionsAssignment(broker_ids=ids)]
        asked = kind.CreatePartitionsTopic(name=topic.name, count=count, assignments=rows)
        side.ask(kind(topics=[asked], timeout_ms=r.TIMEOUT_MS))
        side.await_changes()
    side.ask(r.metadata(topic.name), 12)


@ONE_AWAY.case
def records_deleted_with_one_away(side: FleetSide) -> None:
    for name in ("spread", "strict", "loose"):
        ask_alive(side, r.delete_records(name, 1))


# --- 2 is away as well, and was killed


@TWO_AWAY.versions("Metadata", only=(0, 1, 5, 9, 12, 13))
def metadata_with_two_away(side: FleetSide, version: int) -> None:
    tell_all(side, version)


@TWO_AWAY.case
def described_with_two_away(side: FleetSide) -> None:
    describe_all(side)


@TWO_AWAY.versions("Produce", only=(3, 9, 13))
def produced_with_two_away(side: FleetSide, version: int) -> None:
    """What acks=1 has appended is not committed (KIP-966), so that nobody reads it."""
    for name in ("spread", "loose", "alone"):
        for acks in (-1, 1):
            side.ask(r.produce(kept(side, name), r.batch(), acks=acks), version)


@TWO_AWAY.case
def read_with_two_away(side: FleetSide) -> None:
    read_all(side)


@TWO_AWAY.case
def epochs_with_two_away(side: FleetSide) -> None:
    topic = kept(side, "loose")
    for epoch in range(-1, 5):
        side.ask(ends_of_epochs(topic, epoch))


@TWO_AWAY.versions("ElectLeaders", only=(0, 2))
def elected_with_two_away(side: FleetSide, version: int) -> None:
    for kind in (0, 1) if version else (0,):
        wanted = [("spread", [0, 1, 2]), ("alone", [1, 2]), ("pair", [0, 1]), ("loose", [0])]
        side.ask(election(kind, *wanted), version)


# --- both are back


@BACK.versions("Metadata", only=(0, 5, 9, 13))
def metadata_when_they_are_back(side: FleetSide, version: int) -> None:
    tell_all(side, version)


@BACK.case
def described_when_they_are_back(side: FleetSide) -> None:
    describe_all(side)


@BACK.case
def epochs_when_they_are_back(side: FleetSide) -> None:
    topic = kept(side, "loose")
    for epoch in range(-1, 5):
        ask_alive(side, ends_of_epochs(topic, epoch))
        for offset in (3, 5, 99):
            ask_alive(side, r.fetch(topic, offset, last_fetched_epoch=epoch), 13)


@BACK.case
def preferred_leaders_elected(side: FleetSide) -> None:
    """By each version some; the last of all topics."""
    topic = kept(side, "spread")
    for version, index in ((0, 1), (1, 2), (2, 1)):
        side.ask(election(0, (topic.name, [0, index])), version)
        side.await_changes()
    side.await_state(topic, [1, 2, 3])
    tell_all(side, 12)
    everything = m.ElectLeadersRequest(topic_partitions=None, timeout_ms=r.TIMEOUT_MS)
    side.ask(everything)
    side.await_state(kept(side, "loose"), [3])
    side.await_state(kept(side, "pair"), [2, 3])
    describe_all(side)
    side.ask(everything)
    for epoch in range(-1, 6):
        ask_alive(side, ends_of_epochs(kept(side, "loose"), epoch))
    read_all(side)


# --- 3 has fallen silent, its connections open


@SILENT.case
def a_follower_falls_silent(side: FleetSide) -> None:
    """A record is appended while its replica counts as in sync; it stays the only one that has it."""
    topic = kept(side, "dim")
    request = r.produce(topic, r.batch())
    request.timeout_ms = SILENCE_MS
    side.ask(request)
    side.ask(r.produce(topic, r.batch()))
    side.ask(described(topic))
    side.ask(r.fetch(topic, 2), 13)
    side.ask(r.list_offsets(topic, -1))
