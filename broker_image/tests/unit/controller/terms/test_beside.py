"""What a term does beside its phases: elections of the longest log, and balancing."""

import pytest
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.fencing import fence_steps
from logfleet.controller.changes.election_writes import LogEndsByPartition
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic
from logfleet.controller.terms import balance, events, longest_logs, slices
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms.balance import Balance
from logfleet.controller.terms.longest_logs import AGAIN_MS, LongestLogs
from logfleet.controller.terms.operations import TermDecision
from logfleet.controller.terms.slices import Elections, Turns
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION
from logfleet.metadata.store import Put, Txn
from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import with_isr
from logfleet.types import LeaderEpoch
from logfleet.wire.refusal import Refusal

from broker_image.tests.unit.controller.cluster_rig import Cluster
from broker_image.tests.unit.controller.terms.machine_rig import Node, World

OFTEN = {"leader.imbalance.check.interval.seconds": "300"}
INTERVAL_MS, SETTLED_MS = 300_000, 30_000


def with_topic(world: World, partitions: int = 1, **settings) -> Node:
    """Brokers 1, 2 and 3 hold the topic t, and the node controls."""
    node = Node(world, 1, static=OFTEN, settled_ms=SETTLED_MS, **settings)
    for broker_id in (1, 2, 3):
        world.register(broker_id)
    node.settle()
    new = NewTopic("t", b"t" * 16, 0, assignments=tuple((n, (1, 2, 3)) for n in range(partitions)))

    def create(
        image: ClusterImage, epoch: int, layers: BrokerLayers
    ) -> TermDecision[object] | Refusal:
        made = create_topic(image, epoch, new, layers)
        return TermDecision(made.txns, made) if isinstance(made, TopicCreation) else made

    node.request(1, create)
    node.settle()
    assert isinstance(node.answers[1], TopicCreation)
    return node


def states(node: Node) -> tuple[Partition, ...]:
    topic = node.world.image.topic("t")
    assert topic is not None
    return topic.partitions


def restart(node: Node, *broker_ids: int, **fields) -> None:
    for broker_id in broker_ids:
        node.world.vanish(broker_id)
    node.settle()
    for broker_id in broker_ids:
        node.world.register(broker_id, **fields)


def lose_power(node: Node) -> None:
    """All brokers come back, and may have lost records; the controller has the hold behind it."""
    restart(node, 1, 2, 3, unclean=True)
    node.world.now_ms += 10_000
    node.tick()
    while not any(isinstance(each, to_do.QueryLogEnds) for each in node.pending):
        if node.candidate.image is not node.world.image:
            node.publish()
        else:
            node.answer(node.pending[0])


def end(epoch: int, offset: int) -> EpochEnd:
    return LeaderEpoch(epoch), offset


def ends(query: to_do.QueryLogEnds, **by_broker: EpochEnd) -> LogEndsByPartition:
    return {
        place: {(each.id, each.epoch): by_broker.get(f"b{each.id}", SILENT) for each in brokers}
        for place, brokers in query.asked.items()
    }


def test_the_longest_log_leads_by_the_reports_of_the_last_query() -> None:
    node = with_topic(World())
    lose_power(node)
    query = node.one(to_do.QueryLogEnds)
    node.pending.remove(query)
    found = ends(query, b1=end(3, 50), b2=end(3, 70), b3=end(2, 90))
    node.step(events.LogEndsReported(query.epoch, query.number - 1, found))
    node.step(events.LogEndsReported(query.epoch - 1, query.number, found))
    node.settle()
    assert states(node)[0].leader == NO_LEADER, "these are of other queries"
    node.step(events.LogEndsReported(query.epoch, query.number, found))
    (write,) = [each for each in node.pending if isinstance(each, to_do.Write)]
    assert write.cause == longest_logs.CAUSE
    node.settle()
    assert states(node)[0].leader == 2


def test_who_is_silent_is_asked_again_after_a_pause() -> None:
    node = with_topic(World())
    lose_power(node)
    node.settle()
    assert states(node)[0].leader == NO_LEADER
    asked = node.logged.count("log_ends_asked")
    node.world.now_ms += AGAIN_MS - 1
    node.step(events.TimePassed())
    assert node.logged.count("log_ends_asked") == asked
    node.world.now_ms += 1
    node.tick()
    assert node.logged.count("log_ends_asked") == asked + 1


def led_by_others(world: World) -> Node:
    """Broker 1 is in sync and leads none of 70 partitions."""
    node = with_topic(world, 70)
    restart(node, 1)
    node.settle()
    for index in range(70):
        in_sync(world, index)
    node.publish()
    node.settle()
    assert 1 not in {each.leader for each in states(node)}
    return node


def in_sync(world: World, index: int) -> None:
    topic = world.image.topic("t")
    assert topic is not None
    state = topic.partitions[index]
    members = [(each.id, each.epoch) for each in world.image.brokers.values()]
    value = PARTITION.encode(with_isr(state, members))
    world.commit(Txn(success=(Put(PARTITION.key((b"t" * 16, index)), value),)))


def test_leadership_returns_once_a_second_check_finds_the_same() -> None:
    node = led_by_others(World())
    node.world.now_ms += INTERVAL_MS
    node.tick()
    node.settle()
    assert 1 not in {each.leader for each in states(node)}, "it has to settle"
    node.world.now_ms += SETTLED_MS
    node.tick()
    causes = {each.cause for each in node.pending if isinstance(each, to_do.Write)}
    assert causes == {balance.BALANCED}
    node.settle()
    assert {each.leader for each in states(node)} == {1}
    (report,) = [each for each in node.reports if each.event == "leaders_balanced"]
    assert report.facts["partitions"] == 70


def test_what_has_changed_meanwhile_is_not_balanced() -> None:
    node = led_by_others(World())
    node.world.now_ms += INTERVAL_MS
    node.tick()
    restart(node, 1)
    node.settle()
    node.world.now_ms += SETTLED_MS
    node.tick()
    node.settle()
    assert 1 not in {each.leader for each in states(node)}


@pytest.mark.parametrize("is_enabled, due_ms", [("true", 1_000), ("false", None)])
def test_balancing_can_be_switched_off(is_enabled, due_ms) -> None:
    static = {
        "auto.leader.rebalance.enable": is_enabled,
        "leader.imbalance.check.interval.seconds": "1",
    }
    effects: list[to_do.Effect] = []
    turns = Turns(effects.append)
    found = Balance(1, static, 0, turns=turns, emit=effects.append, now_ms=0)
    assert found.due_ms == due_ms
    found.advance(ClusterImage(), 10_000)
    assert (found.state is balance.State.OFF) == (due_ms is None)


@pytest.mark.parametrize("states", [balance.NEXT, longest_logs.NEXT], ids=["balance", "longest"])
def test_the_tables_have_all_states(states) -> None:
    (kind,) = {type(each) for each in states}
    assert set(kind.__members__.values()) == states.keys()


class Slices:
    def __init__(self, monkeypatch, partitions: int) -> None:
        monkeypatch.setattr(slices, "SLICE_PARTITIONS", 4)
        monkeypatch.setattr(longest_logs, "SLICE_PARTITIONS", 4)
        self.cluster = Cluster()
        self.cluster.start(1, 2)
        for number in range(partitions):
            self.cluster.create(f"t{number}", replication_factor=2)
        self.effects: list[to_do.Effect] = []
        self.turns = Turns(self.effects.append)

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    @property
    def yields(self) -> int:
        return sum(isinstance(each, to_do.Yield) for each in self.effects)


def test_elections_go_by_slices(monkeypatch) -> None:
    rig = Slices(monkeypatch, 10)
    rig.cluster.vanish(1)
    rig.cluster.do(list(fences(rig)))
    topics = [topic.id for topic in rig.image.topics()]
    elections = Elections(rig.image, topics, rig.cluster.layers, 0)
    slices_of = []
    while not elections.are_done:
        slices_of.append(len(elections.next_steps()))
    assert slices_of == [4, 4, 2]
    assert elections.elected == 10


def fences(rig: Slices):
    return fence_steps(rig.image)


def test_partitions_without_a_leader_are_found_by_slices(monkeypatch) -> None:
    rig = Slices(monkeypatch, 10)
    found = LongestLogs(rig.cluster.epoch, {}, rig.turns, rig.effects.append)
    found.advance(rig.image, 0)
    for expected in (1, 2, 2):
        assert rig.yields == expected
        rig.turns.came()
        found.turn_came()
    assert found.state is longest_logs.State.WATCHING


def test_a_turn_is_asked_for_once(monkeypatch) -> None:
    rig = Slices(monkeypatch, 0)
    rig.turns.ask()
    rig.turns.ask()
    assert rig.yields == 1
    rig.turns.came()
    rig.turns.ask()
    assert rig.yields == 2
