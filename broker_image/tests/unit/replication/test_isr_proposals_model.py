"""The machine that writes ISRs, in any order of events: replies are lost or late, brokers come and go, leader epochs begin.

What holds after every step: each change that a leader waits for has one open proposal, and what is
settled stays so, whichever older attempt the store carries out later.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logfleet.metadata.kinds.brokers import ACTIVE, FENCED
from logfleet.metadata.store import StoreRefused, StoreUnavailable, UnknownOutcome
from logfleet.replication.isr_proposals import Effect, Ended, Proposal, Send, Settled, State, Write

from broker_image.tests.unit.replication.isr_rig import LAG_MAX_MS, ME, Leader, Led

PARTITIONS = 2
indexes = st.integers(0, PARTITIONS - 1)
others = st.sampled_from([2, 3])


class Proposals(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.leader = Leader()
        self.leader.create(1, 2, partitions=PARTITIONS)
        self.led = {index: self.leader.lead(index) for index in range(PARTITIONS)}
        self.ever_led = list(self.led.values())
        self.held: list[Write[Led]] = []  # attempts that the store may carry out later
        self.open: list[Proposal[Led]] = []
        self.leader.on_step = self.take
        self.leader.step()

    def take(self, effects: list[Effect[Led]]) -> None:
        for effect in effects:
            match effect:
                case Send(write):
                    assert all(each.state is State.SENT for each in write.proposals.values())
                    self.open += [
                        each for each in write.proposals.values() if each not in self.open
                    ]
                case Settled(proposal):
                    if proposal.state is State.DROPPED and proposal not in self.open:
                        continue
                    self.open.remove(proposal)
                case Ended(partition):
                    assert self.led[partition.index] is partition

    # the partitions

    @rule(index=indexes)
    def append(self, index: int) -> None:
        led = self.led[index]
        if led.is_leading:
            led.append(led.ends.log_end_offset + 3)

    @rule(index=indexes, broker_id=others, is_behind=st.booleans())
    def fetch(self, index: int, broker_id: int, *, is_behind: bool) -> None:
        led = self.led[index]
        offset = 0 if is_behind else led.ends.log_end_offset
        if led.is_leading:
            self.leader.fetch(led, broker_id, offset)
            self.leader.step()

    @rule(ms=st.sampled_from([1, 50, 1_000, LAG_MAX_MS]))
    def pass_time(self, ms: int) -> None:
        self.leader.pass_ms(ms)

    # the store

    @precondition(lambda self: self.leader.writes)
    @rule(
        which=st.integers(0, 9),
        fate=st.sampled_from(["done", "done", "unanswered", "lost", "held", "away", "refused"]),
    )
    def reply(self, which: int, fate: str) -> None:
        leader = self.leader
        write = leader.writes[which % len(leader.writes)]
        match fate:
            case "done":
                leader.answer(write)
            case "away":
                leader.reply(write, StoreUnavailable("away"))
            case "refused":
                leader.reply(write, StoreRefused("no permission"))
            case _:
                if fate == "unanswered":
                    leader.commit(write)
                elif fate == "held":
                    self.held.append(write)
                leader.reply(write, UnknownOutcome("no reply"))

    @precondition(lambda self: self.held)
    @rule()
    def carry_out_late(self) -> None:
        write = self.held.pop(0)
        if self.leader.commit(write).succeeded:
            assert all(each in self.open for each in write.proposals.values())

    @rule()
    def see(self) -> None:
        self.leader.see()
        self.leader.step()

    # the other writers

    @rule(broker_id=st.sampled_from([1, 2, 3]), state=st.sampled_from([FENCED, ACTIVE]))
    def fence(self, broker_id: int, state: str) -> None:
        self.leader.store.fence(*self.leader.members[broker_id], state)

    @rule(broker_id=others)
    def register_again(self, broker_id: int) -> None:
        self.leader.members[broker_id] = self.leader.store.start(broker_id)

    @rule()
    def lose_or_regain_registration(self) -> None:
        self.leader.me = self.leader.members[ME] if self.leader.me is None else None
        self.leader.step()

    @rule(index=indexes, leader=st.sampled_from([1, 1, 2]))
    def elect(self, index: int, leader: int) -> None:
        state, _ = self.leader.stored(index)
        isr = tuple(self.leader.members[each] for each in sorted({1, leader}))
        state = state.changed(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
        self.leader.store.put(self.leader.key(index), state)

    @rule(index=indexes)
    def learn(self, index: int) -> None:
        """The broker applies its newest image: the leadership goes on, ends, or begins."""
        self.leader.see()
        self.leader.step()
        led, (state, revision) = self.led[index], self.leader.stored(index)
        if led.is_leading and not led.ends.learned(state, revision):
            led.is_leading = False
        if (
            not led.is_leading
            and state.leader == ME
            and state.leader_epoch > led.replicas_state.state.leader_epoch
        ):
            self.led[index] = self.leader.lead(index)
            self.ever_led.append(self.led[index])
        self.leader.step()

    # what always holds

    @invariant()
    def each_change_that_a_leader_waits_for_has_one_open_proposal(self) -> None:
        pending = [led for led in self.ever_led if led.replicas_state.pending is not None]
        assert len(pending) == len(self.open)
        for proposal in self.open:
            assert proposal.partition.replicas_state.pending is proposal.change

    @invariant()
    def no_wait_is_without_a_bound(self) -> None:
        now_ms = self.leader.now_ms
        assert now_ms < self.leader.machine.wake_ms <= now_ms + LAG_MAX_MS // 2

    def teardown(self) -> None:
        """Once the store answers and the images come, every proposal is settled."""
        leader = self.leader
        for _ in range(4):
            leader.see()
            leader.pass_ms(60_000)
            while leader.writes:
                leader.answer(leader.writes[0])
                leader.see()
                leader.step()
        assert self.open == []


Proposals.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestProposals = Proposals.TestCase
