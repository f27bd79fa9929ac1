from itertools import product

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.kinds.brokers import ACTIVE, FENCED, BrokerValue
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.failsafe import (
    CHECK_S,
    CONFIRMED_MS,
    EXTENSION_S,
    PAST_DEADLINE,
    SETTLING_MS,
    TRANSITIONS,
    AskPeers,
    Began,
    Effect,
    Ended,
    Extend,
    Failsafe,
    Resume,
    State,
    StopAsking,
    SuspendUnfollowed,
    is_followed,
    is_majority,
    peers_of,
    silent_s,
)
from logfleet.replication.leader import LeaderReplicas
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

PEERS = frozenset({2, 3})
TTL_S = 3


class Lease(msgspec.Struct):
    deadline_s: float
    ttl_s: int = TTL_S


class Rig:
    """A broker that was registered at second 100, and checked ever since. now_s: of both clocks."""

    def __init__(self) -> None:
        self.rules = Failsafe()
        self.now_s = 100.0
        self.lease: Lease | None = Lease(self.now_s + TTL_S)
        self.rules.registered()
        for _ in range(8):  # by then it has settled
            self.check()

    @property
    def now_ms(self) -> int:
        return round(1_000 * self.now_s)

    def answer(self) -> None:
        """The store answers a keepalive."""
        assert self.lease is not None
        self.lease.deadline_s = self.now_s + TTL_S

    def check(self, after_s: float = CHECK_S, *, is_answered: bool = True) -> list[Effect]:
        self.now_s += after_s
        if is_answered and self.lease is not None:
            self.answer()
        return self.rules.check(self.now_s, self.now_ms, self.lease, PEERS)

    def silence(self, seconds: float) -> list[Effect]:
        """The effects of the last check after that time without an answer."""
        effects: list[Effect] = []
        for _ in range(round(seconds / CHECK_S)):
            effects = self.check(is_answered=False)
        return effects


def test_a_registration_begins_with_a_store_that_answers() -> None:
    rules = Failsafe()
    assert rules.check(1.0, 1_000, None, PEERS) == [StopAsking()]
    assert rules.state is State.UNREGISTERED
    with pytest.raises(AssertionError):
        rules.check(1.25, 1_250, Lease(0.0), PEERS)


@pytest.mark.parametrize("before, after", list(product(State, State)))
def test_the_table_has_every_pair_of_states(before: State, after: State) -> None:
    """Only a registration that has not been reported may not be judged by its lease."""
    is_allowed = after in TRANSITIONS[before]
    assert is_allowed == (
        before is not State.UNREGISTERED or after.value in {"unregistered", "answered"}
    )


@pytest.mark.parametrize(
    "silence_s, state, effects",
    [
        (0, State.ANSWERED, [StopAsking(), Resume()]),
        (1.5, State.ANSWERED, [StopAsking(), Resume()]),
        (1.75, State.SILENT, [AskPeers(PEERS), Resume()]),
        (2.25, State.SILENT, [AskPeers(PEERS), Resume()]),
    ],
)
def test_peers_are_asked_before_the_deadline(
    silence_s: float, state: State, effects: list[Effect]
) -> None:
    rig = Rig()
    rig.check()
    assert (rig.silence(silence_s) if silence_s else rig.check()) == effects
    assert rig.rules.state is state


def test_what_others_do_not_confirm_is_suspended_before_an_answer_past_the_deadline() -> None:
    rig = Rig()
    effects = rig.silence(2.5)
    assert rig.rules.state is State.CONFIRMING
    suspend = SuspendUnfollowed(rig.now_ms - CONFIRMED_MS)
    assert effects == [AskPeers(PEERS), Began(2.5), suspend]
    assert rig.rules.judged(1) == [Extend(rig.now_s + EXTENSION_S)]
    assert rig.rules.judged(1) == [], "once"
    effects = rig.silence(CHECK_S)
    assert effects == [AskPeers(PEERS), SuspendUnfollowed(rig.now_ms - CONFIRMED_MS)]


def test_what_is_followed_again_is_resumed_once_nothing_had_to_be_suspended() -> None:
    rig = Rig()
    rig.silence(2.5)
    since_ms = rig.now_ms - CONFIRMED_MS
    assert rig.rules.judged(0) == [Resume(since_ms), Extend(rig.now_s + EXTENSION_S)]


@pytest.mark.parametrize(
    "age_ms, is_confirmed", [(0, True), (CONFIRMED_MS, True), (CONFIRMED_MS + 1, False)]
)
def test_most_peers_confirm_everything_for_a_while(age_ms: int, *, is_confirmed: bool) -> None:
    rig = Rig()
    rig.silence(2.25)
    for peer in PEERS:
        rig.rules.peer_answered(peer, rig.now_ms + 250 - age_ms)
    effects = rig.silence(CHECK_S)
    extends = [Resume(), Extend(rig.now_s + EXTENSION_S)]
    assert (effects[2:] == extends) is is_confirmed


def test_a_peer_that_gets_answers_again_confirms_nothing() -> None:
    rig = Rig()
    rig.silence(2.25)
    for peer in PEERS:
        rig.rules.peer_answered(peer, rig.now_ms)
    assert rig.rules.is_majority_silent(0, PEERS)
    rig.rules.peer_answered(2, None)
    rig.rules.peer_answered(2, None)
    assert not rig.rules.is_majority_silent(0, PEERS)


def test_answers_of_an_earlier_silence_do_not_count() -> None:
    rig = Rig()
    rig.silence(2.25)
    for peer in PEERS:
        rig.rules.peer_answered(peer, rig.now_ms)
    rig.check()
    assert not rig.rules.is_majority_silent(0, PEERS)


def test_an_answer_of_the_store_ends_it_and_resumes_everything() -> None:
    rig = Rig()
    rig.silence(3)
    assert rig.check() == [StopAsking(), Ended(), Resume()]
    assert rig.check() == [StopAsking(), Resume()]


def test_a_process_that_was_stopped_waits_until_others_can_have_confirmed_it_again() -> None:
    rig = Rig()
    rig.silence(3)
    rig.rules.peer_answered(2, rig.now_ms)
    rig.rules.peer_answered(3, rig.now_ms)
    stopped = rig.check(EXTENSION_S + 0.5, is_answered=False)
    assert rig.rules.state is State.SETTLING
    assert stopped == [AskPeers(PEERS)]
    counted_from_ms = rig.now_ms
    assert rig.silence(SETTLING_MS / 1_000 - CHECK_S) == [AskPeers(PEERS)]
    effects = rig.silence(CHECK_S)
    assert effects == [AskPeers(PEERS), SuspendUnfollowed(counted_from_ms)]


def test_a_registration_that_ends_while_partitions_are_judged_is_not_extended() -> None:
    rig = Rig()
    rig.silence(3)
    rig.rules.unregistered()
    assert rig.rules.judged(0) == []
    rig.rules.registered()
    assert rig.rules.judged(0) == []
    rig.rules.unregistered()
    rig.lease = None
    assert rig.check() == [StopAsking()]


@pytest.mark.parametrize("unanswered_s, silent", [(0, 0), (1.5, 0), (1.6, 1.6), (90, 90)])
def test_the_store_is_silent_after_half_of_the_leases_time(
    unanswered_s: float, silent: float
) -> None:
    assert silent_s(100.0, Lease(100.0 + TTL_S - unanswered_s)) == pytest.approx(silent)


def test_an_embedded_store_is_never_silent() -> None:
    assert silent_s(100.0, Lease(float("inf"))) == 0.0


@pytest.mark.parametrize(
    "silent, peers, majority",
    [
        ({}, {}, False),
        ({2}, {2}, True),
        ({}, {2}, False),
        ({2}, {2, 3}, False),
        ({2, 3}, {2, 3}, True),
        ({2, 3}, {2, 3, 4, 5}, False),
        ({2, 3, 4}, {2, 3, 4, 5}, True),
        ({2, 9}, {2, 3}, False),
    ],
)
def test_more_than_half_of_the_peers_are_a_majority(silent, peers, *, majority: bool) -> None:
    assert is_majority(set(silent), set(peers)) is majority


def test_the_peers_are_the_other_active_brokers() -> None:
    states = {1: ACTIVE, 2: ACTIVE, 3: FENCED}
    brokers = {
        each: Broker(each, BrokerEpoch(each), BrokerValue("", ()), state)
        for each, state in states.items()
    }
    assert peers_of(ClusterImage(1, brokers=brokers), 1) == {2}


@pytest.mark.parametrize(
    "isr, elr, following, followed",
    [
        ((1, 2, 3), (), {2, 3}, True),
        ((1, 2, 3), (), {2}, False),
        ((1, 2), (), {2}, True),
        ((1,), (), {2, 3}, False),
        ((1, 2), (3,), {2, 3}, False),
    ],
)
def test_a_leader_is_followed_by_all_who_could_be_elected(
    isr, elr, following, *, followed: bool
) -> None:
    members = tuple((each, BrokerEpoch(each)) for each in isr)
    state = PartitionValue((1, 2, 3), members, 1, LeaderEpoch(7), PartitionEpoch(1), 3, elr=elr)
    replicas = LeaderReplicas(1, state, 1, ends=ReplicaEnds(), lag_max_ms=1, now_ms=0)

    def follows(broker_id: int, broker_epoch: BrokerEpoch, leader_epoch: LeaderEpoch) -> bool:
        assert (broker_epoch, leader_epoch) == (broker_id, 7)
        return broker_id in following

    assert is_followed(replicas, follows) is followed


class Tenures(RuleBasedStateMachine):
    """In any order of answers, silence, stops and registrations: what may be answered has been confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.until_s = 0.0
        self.reported: dict[int, int] = {}
        self.arrived_from_ms = 0  # what came before may have waited while the process was stopped
        self.is_past = False

    def check(self, after_s: float, *, is_answered: bool = False) -> None:
        if after_s > EXTENSION_S:
            self.arrived_from_ms = self.rig.now_ms + round(1_000 * after_s)
        self.take(self.rig.check(after_s, is_answered=is_answered))

    def take(self, effects: list[Effect]) -> None:
        rig = self.rig
        for effect in effects:
            match effect:
                case Began():
                    assert not self.is_past
                    self.is_past = True
                case Ended():
                    assert self.is_past
                    self.is_past = False
                case StopAsking():
                    self.reported.clear()
                case SuspendUnfollowed(since_ms):
                    assert since_ms >= max(rig.now_ms - CONFIRMED_MS, self.arrived_from_ms)
                    self.take(rig.rules.judged(0))
                case Extend(until_s):
                    assert rig.lease is not None
                    assert rig.now_ms - self.arrived_from_ms >= SETTLING_MS
                    assert until_s <= rig.now_s + EXTENSION_S
                    self.until_s = until_s
                    if SuspendUnfollowed not in map(type, effects) and len(effects) > 2:
                        fresh = {
                            peer
                            for peer, at_ms in self.reported.items()
                            if at_ms >= rig.now_ms - CONFIRMED_MS
                        }
                        assert is_majority(fresh, PEERS)

    @rule(times=st.integers(1, 12))
    def answered(self, times: int) -> None:
        for _ in range(times):
            self.check(CHECK_S, is_answered=True)

    @rule(times=st.integers(1, 12))
    def silent(self, times: int) -> None:
        for _ in range(times):
            self.check(CHECK_S)

    @rule(after_s=st.sampled_from([0.9, 1.1, 5.0]))
    def stopped(self, after_s: float) -> None:
        self.check(after_s)

    @rule(
        peer=st.sampled_from(sorted(PEERS)),
        age_ms=st.sampled_from([0, 500, 2_500]),
        is_silent=st.booleans(),
    )
    def peer_answers(self, peer: int, age_ms: int, *, is_silent: bool) -> None:
        silent_ms = self.rig.now_ms - age_ms if is_silent else None
        self.rig.rules.peer_answered(peer, silent_ms)
        self.reported.pop(peer, None)
        if silent_ms is not None:
            self.reported[peer] = silent_ms

    @precondition(lambda self: self.rig.lease is not None)
    @rule()
    def unregister(self) -> None:
        self.rig.rules.unregistered()
        self.rig.lease, self.is_past, self.until_s = None, False, 0.0

    @precondition(lambda self: self.rig.lease is None)
    @rule()
    def register(self) -> None:
        self.rig.rules.registered()
        self.rig.lease = Lease(self.rig.now_s + TTL_S)

    @invariant()
    def it_is_reported_whether_the_broker_leads_past_its_deadline(self) -> None:
        assert (self.rig.rules.state in PAST_DEADLINE) is self.is_past


Tenures.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTenures = Tenures.TestCase
