"""Whatever brokers do between two looks of the controller: it comes to rest, and whom it elects holds what was acknowledged."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from logfleet.controller.brokers.fencing import fence_steps, newcomers, suspect_step
from logfleet.controller.brokers.leaving import decide
from logfleet.controller.changes.election_writes import election_steps
from logfleet.metadata.image import Partition
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.metadata.packing import Step
from logfleet.replication.election import replicas_to_query
from logfleet.replication.partition_state import effective_min_isr

from broker_image.tests.unit.controller.cluster_rig import Cluster

BROKERS = (1, 2, 3)
ACTIONS = ("start", "start unclean", "vanish", "leave", "suspect", "catch up", "look")


class Fleet(Cluster):
    """Three brokers with one partition, and who of them holds every record that was acknowledged."""

    def __init__(self, min_isr: int) -> None:
        super().__init__()
        self.start(*BROKERS)
        self.create("t", replication_factor=3, configs={"min.insync.replicas": str(min_isr)})
        self.complete = set(BROKERS)
        self.unsettled: set[int] = (
            set()
        )  # started uncleanly, and say so until they are let in (LogDir.settle)

    @property
    def partition(self) -> Partition:
        return self.topic("t").partitions[0]

    def act(self, action: str, broker_id: int) -> None:
        there = self.image.brokers.get(broker_id)
        match action:
            case "start" | "start unclean" if there is None:
                if action == "start unclean":
                    self.complete.discard(broker_id)
                    self.unsettled.add(broker_id)
                self.register(broker_id, unclean=broker_id in self.unsettled)
            case "vanish" if there is not None:
                self.vanish(broker_id)
            case "leave" if there is not None:
                self.register(broker_id, unclean=there.value.unclean, leaving=True)
            case "suspect" if there is not None:
                step = suspect_step(self.image, broker_id, there.epoch)
                self.do([step] if step else [])
            case "catch up" if there is not None and there.is_active:
                self.catch_up(broker_id)
            case "look":
                self.look()

    def catch_up(self, broker_id: int) -> None:
        """The leader's transaction compares that both are what the controller holds them for."""
        state = self.partition
        leader = self.image.brokers.get(state.leader)
        if leader is None or leader.is_fenced or broker_id in state.isr_ids:
            return
        if (leader.id, leader.epoch) in state.isr:
            self.in_sync("t", 0, broker_id)
            self.complete.add(broker_id)
            self.acknowledge()

    def acknowledge(self) -> None:
        """Records are committed wherever they can be; who is not in sync lacks them."""
        state = self.partition
        if state.leader != NO_LEADER and len(state.isr) >= effective_min_isr(state):
            self.complete = set(state.isr_ids)

    def look(self) -> None:
        before = self.partition
        self.converge()
        self.do([step for _, step in decide(self.image) if isinstance(step, Step)])
        self.converge()
        after = self.partition
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch >= before.partition_epoch
        if after.leader != NO_LEADER:
            assert after.leader in after.isr_ids
            if after.recovering:
                self.complete = {after.leader}
            assert after.leader in self.complete
        for broker_id, epoch in after.isr:
            assert self.image.brokers[broker_id].epoch == epoch
            assert not self.image.brokers[broker_id].is_fenced
        assert not list(fence_steps(self.image))
        assert not newcomers(self.image)
        self.unsettled -= set(self.image.brokers)
        assert not list(election_steps(self.image, self.topic("t"), self.layers))
        self.acknowledge()


@example(
    1,
    [
        ("vanish", 1),
        ("vanish", 3),
        ("start unclean", 3),
        ("vanish", 3),
        ("start", 3),
        ("vanish", 2),
    ],
)
@example(
    1,
    [
        ("vanish", 1),
        ("vanish", 3),
        ("start unclean", 1),
        ("start unclean", 3),
        ("vanish", 2),
        ("start unclean", 2),
    ],
)
@given(
    st.sampled_from([1, 2, 3]),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(BROKERS)), max_size=25),
)
def test_a_leader_that_came_cleanly_holds_every_acknowledged_record(min_isr, actions):
    fleet = Fleet(min_isr)
    for action, broker_id in actions:
        fleet.act(action, broker_id)
    fleet.look()
    if len(fleet.image.brokers) == len(BROKERS) and not any(
        broker.is_fenced for broker in fleet.image.brokers.values()
    ):
        asked = list(replicas_to_query(fleet.partition, fleet.image.brokers, unclean=False))
        is_led = fleet.partition.has_leader
        assert is_led or len(asked) > 1, "somebody leads, or all are asked how far logs reach"


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_a_fleet_that_stops_and_starts_cleanly_leads_on_without_loss(min_isr):
    fleet = Fleet(min_isr)
    for broker_id in BROKERS:
        fleet.act("vanish", broker_id)
        fleet.look()
    for broker_id in BROKERS:
        fleet.act("start", broker_id)
        fleet.look()
    assert fleet.partition.has_leader
    assert not fleet.partition.recovering
