"""What a pass of convergence writes, in which order, and when it is given up."""

from collections.abc import Iterator

import pytest
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms import events
from logfleet.controller.terms.candidate import Revoking
from logfleet.controller.terms.convergence import is_swept
from logfleet.controller.terms.operations import TermDecision
from logfleet.controller.terms.term import Phase
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import (
    ACTIVE,
    BROKER,
    DRAINING,
    FENCE,
    FENCED,
    BrokerValue,
    FenceValue,
)
from logfleet.metadata.kinds.topics import PARTITION, TOPIC, TOPIC_ID, TopicValue
from logfleet.metadata.store import Put, StoreRefused, Txn, exists
from logfleet.wire import uuids
from logfleet.wire.refusal import Refusal

from broker_image.tests.unit.controller.terms.machine_rig import Node, World


def controlling(brokers: int = 3) -> Node:
    node = Node(World(), 1)
    for broker_id in range(1, brokers + 1):
        node.world.register(broker_id)
    node.settle()
    return node


def create(node: Node, name: str, replicas: tuple[int, ...], min_isr: int = 1) -> None:
    topic_id = name.encode()[:16].ljust(16, b"-")
    configs = {"min.insync.replicas": str(min_isr)}
    new = NewTopic(name, topic_id, 0, assignments=((0, replicas),), configs=configs)

    def decide(
        image: ClusterImage, epoch: int, layers: BrokerLayers
    ) -> TermDecision[object] | Refusal:
        made = create_topic(image, epoch, new, layers)
        return TermDecision(made.txns, made) if isinstance(made, TopicCreation) else made

    number = 1_000 + len(node.answers)
    node.request(number, decide)
    node.settle()
    assert isinstance(node.answers[number], TopicCreation), node.answers[number]


def writes(node: Node) -> Iterator[str]:
    """Settle, and yield the key that each write puts first."""
    while node.pending or node.candidate.image is not node.world.image:
        if node.candidate.image is not node.world.image:
            node.publish()
            continue
        effect = node.pending[0]
        if isinstance(effect, to_do.Write):
            first = effect.txn.success[0]
            assert isinstance(first, Put)
            yield first.key
        node.answer(effect)


def test_a_broker_that_returns_is_fenced_swept_and_admitted_in_this_order() -> None:
    node = controlling()
    create(node, "t", (1, 2, 3))
    node.world.vanish(2)
    node.world.register(3)
    written = list(writes(node))
    topic = uuids.to_text(b"t".ljust(16, b"-"))
    assert written == [FENCE.key(2), PARTITION.key((uuids.from_text(topic), 0))]
    node.world.register(2)
    assert list(writes(node)) == [FENCE.key(2)]


def test_a_newcomer_waits_until_nothing_counts_on_its_former_registration() -> None:
    node = controlling()
    create(node, "t", (1, 2, 3))
    node.world.vanish(2)
    node.world.register(2)
    topic = uuids.to_text(b"t".ljust(16, b"-"))
    fence = [FENCE.key(2)] if node.world.image.fences[2].state == FENCED else []
    assert list(writes(node)) == [*fence, PARTITION.key((uuids.from_text(topic), 0)), FENCE.key(2)]
    assert node.world.image.brokers[2].is_active


@pytest.mark.parametrize("elected, swept", [(0, True), (1, False)])
def test_one_changed_partition_keeps_newcomers_out(elected, swept) -> None:
    assert is_swept(elected) == swept


def test_what_a_former_controller_left_half_made_is_removed() -> None:
    node = controlling()
    topic_id = bytes(15) + b"x"
    uuid = uuids.to_text(topic_id)
    half = (
        TOPIC.put("half", TopicValue(uuid)),
        Put(TOPIC_ID.key(uuids.from_text(uuid)), b"half"),
    )
    node.world.commit(Txn(success=half))
    assert node.world.image.unfinished
    node.settle()
    assert not node.world.image.unfinished
    assert node.world.keyspace.get(TOPIC.key("half")) is None


def test_internal_topics_get_their_replicas_once_there_are_brokers() -> None:
    node = controlling(1)
    create(node, "__consumer_offsets", (1,))
    for broker_id in (2, 3):
        node.world.register(broker_id)
    node.settle()
    topic = node.world.image.topic("__consumer_offsets")
    assert topic is not None
    assert sorted(topic.partitions[0].replicas) == [1, 2, 3]
    assert "internal_topics_raised" in node.logged


def test_a_broker_that_is_needed_stays_and_the_reason_is_logged_once() -> None:
    node = controlling()
    create(node, "t", (1, 2, 3), min_isr=2)
    node.world.vanish(3)
    node.settle()
    for _ in range(2):
        _leave(node, 2)
        node.settle()
    assert node.logged.count("broker_kept") == 1
    assert node.decisions[-1].broker == 2
    assert node.world.image.fences[2].state == ACTIVE


def test_a_broker_that_can_be_spared_leaves() -> None:
    node = controlling()
    create(node, "t", (1, 2, 3), min_isr=1)
    _leave(node, 2)
    node.settle()
    assert node.world.image.fences[2].state == DRAINING
    assert node.logged.count("broker_draining") == 1


def _leave(node: Node, broker_id: int) -> None:
    """The broker rewrites its registration."""
    value = BrokerValue(f"i{broker_id}", (), leaving=True)
    put = BROKER.put(broker_id, value)
    node.world.commit(Txn((exists(put.key),), (put,)))


def test_a_pass_that_loses_a_conflict_begins_again_by_a_newer_image() -> None:
    node = controlling()
    term = node.candidate.term
    assert term is not None
    node.world.register(4)
    node.publish()
    value = FENCE.encode(FenceValue(node.world.image.brokers[4].epoch, FENCED))
    node.world.commit(Txn(success=(Put(FENCE.key(4), value),)))
    node.answer(node.one(to_do.Write))
    phases = [term.phase]
    node.settle()
    assert [*phases, term.phase] == [Phase.CATCHING_UP, Phase.IDLE]
    assert node.logged.count("decision_repeated") == 1


def test_a_write_that_the_store_refuses_ends_the_term() -> None:
    node = controlling()
    node.world.register(4)
    node.publish()
    write = node.one(to_do.Write)
    node.pending.remove(write)
    node.step(events.WriteAnswered(write.number, StoreRefused("permission denied")))
    assert isinstance(node.candidate.state, Revoking)
    assert node.candidate.failed_terms == 0
