from itertools import product

import pytest
from logfleet.metadata.attempts import UNANSWERED_MS
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCED
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.store import Put, StoreRefused, StoreUnavailable, Txn, UnknownOutcome
from logfleet.replication.isr_proposals import (
    GATHERING_MS,
    TRANSITIONS,
    Accepted,
    CheckAll,
    Ended,
    Event,
    Proposal,
    Repeated,
    State,
)
from logfleet.replication.isr_write import CHANGES_MAX

from broker_image.tests.unit.replication.isr_rig import LAG_MAX_MS, Leader, settled

FINAL = {State.WON, State.LOST, State.DROPPED}
UNKNOWN = UnknownOutcome("no reply")


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.mark.parametrize("state, event", list(product(State, Event)))
def test_a_proposal_follows_the_table_and_nothing_else(leader, state: State, event: Event) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    change = led.isr_change(0, lambda *_: True)
    assert change is not None
    proposal = Proposal(led, change, 0)
    proposal.state = state
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(AssertionError, match=f"{event} while {state}"):
            proposal.follow(event)
    else:
        proposal.follow(event)
        assert proposal.state is after


def test_every_state_is_reached_and_only_final_ones_have_no_next() -> None:
    reached = {State.GATHERED, *TRANSITIONS.values()}
    assert reached == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - FINAL


def test_from_every_state_a_proposal_can_end() -> None:
    ends = set(FINAL)
    while more := {
        before for (before, _), after in TRANSITIONS.items() if after in ends and before not in ends
    }:
        ends |= more
    assert ends == set(State)


def test_what_is_due_within_a_while_shares_a_transaction(leader) -> None:
    leader.create(1, partitions=3)
    all_led = [leader.lead(index) for index in range(3)]
    leader.fetch(all_led[0], 2)
    leader.step()
    assert leader.machine.wake_ms == GATHERING_MS
    leader.now_ms += GATHERING_MS - 1
    for led in all_led[1:]:
        leader.fetch(led, 2)
    assert not leader.machine.check(all_led[0]), "a step is due anyway"
    leader.step()
    assert leader.writes == []
    leader.pass_ms(1)
    (write,) = leader.writes
    assert list(write.proposals) == [leader.key(index) for index in range(3)]
    assert settled(leader.answer(write)) == [(0, "won"), (1, "won"), (2, "won")]
    assert [led.isr for led in all_led] == [[1, 2]] * 3
    assert leader.stored(0)[0].partition_epoch == 4


def test_a_step_works_on_few_partitions_and_asks_for_the_next_one(leader) -> None:
    count = 2 * CHANGES_MAX + 1
    leader.create(1, partitions=count)
    for index in range(count):
        leader.fetch(leader.lead(index), 2)
    leader.step()
    leader.now_ms += GATHERING_MS
    sizes = []
    for _ in range(3):
        assert leader.machine.wake_ms <= leader.now_ms
        sizes.append([len(each.write.proposals) for each in leader.step()])
    assert sizes == [[CHANGES_MAX], [CHANGES_MAX], [1]]
    assert leader.machine.wake_ms > leader.now_ms


def test_few_changes_of_many_partitions_share_a_transaction(leader) -> None:
    count = 2 * CHANGES_MAX
    leader.create(1, partitions=count)
    for index in range(count):
        led = leader.lead(index)
        led.append(1)
        leader.fetch(led, 2, index % CHANGES_MAX == 0)
        leader.machine.check(led)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    assert list(write.proposals) == [leader.key(0), leader.key(CHANGES_MAX)]


def test_an_unanswered_transaction_is_sent_again_after_growing_pauses(leader) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    pauses = []
    for reply in (UNKNOWN, StoreUnavailable("away")) * 4:
        assert leader.reply(write, reply) == [Repeated(write, reply)]
        assert leader.writes == []
        pauses.append(write.pause_ms)
        leader.pass_ms(pauses[-1] - 1)
        assert leader.writes == []
        leader.pass_ms(1)
        assert leader.writes == [write]
    assert pauses == [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]
    assert led.replicas_state.pending is not None
    assert settled(leader.answer(write)) == [(0, "won")]


def test_a_refused_transaction_is_sent_again_after_longer_pauses(leader) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    leader.reply(write, UNKNOWN)
    leader.pass_ms(50)
    pauses = []
    for number in range(8):
        leader.reply(write, StoreRefused("no permission"))
        assert write.attempts.refusals == number + 1
        pauses.append(write.pause_ms)
        leader.pass_ms(write.pause_ms)
        assert leader.writes == [write]
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    leader.reply(write, UNKNOWN)
    assert write.pause_ms == UNANSWERED_MS[0]
    leader.pass_ms(write.pause_ms)
    assert Accepted(write, is_written=True) in leader.answer(write)


def test_an_attempt_that_was_applied_without_a_reply_is_won_by_the_next_one(leader) -> None:
    """The reply is a failed compare that reads the change itself."""
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    leader.commit(write)
    leader.reply(write, UNKNOWN)
    leader.pass_ms(50)
    leader.answer(write)
    assert led.isr == [1], "the image does not show it yet"
    assert led.replicas_state.pending is not None
    leader.see()
    assert settled(leader.step()) == [(0, "lost")]
    assert (led.isr, led.replicas_state.pending) == ([1, 2], None)


def test_a_lost_proposal_is_settled_once_the_image_shows_the_cause(leader) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    leader.store.fence(*leader.members[2], FENCED)
    assert leader.answer(write) == [Accepted(write, is_written=False)]
    leader.fetch(led, 2)
    assert settled(leader.pass_ms(GATHERING_MS)) == []
    assert leader.writes == [], "it would be lost again"
    leader.see()
    effects = leader.step()
    assert settled(effects) == [(0, "lost")]
    assert CheckAll() in effects, "a broker has changed"
    assert led.replicas_state.pending is None


def test_what_failed_because_of_another_partition_is_sent_alone(leader) -> None:
    leader.create(1, partitions=3)
    for index in range(3):
        leader.fetch(leader.lead(index), 2)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    changed = leader.stored(1)[0].changed(min_isr=2)
    leader.store.put(leader.key(1), changed)
    leader.answer(write)
    assert [list(each.proposals) for each in leader.writes] == [[leader.key(0)], [leader.key(2)]]
    for each in list(leader.writes):
        leader.answer(each)
    assert settled(leader.effects) == [(0, "won"), (2, "won")]
    leader.see()
    assert settled(leader.step()) == [(1, "lost")]


@pytest.mark.parametrize("what", ["unregistered", "fenced", "member gone"])
def test_what_the_image_forbids_is_dropped_unsent(leader, what: str) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    if what == "unregistered":
        leader.me = None
    elif what == "fenced":
        leader.store.fence(*leader.members[1], FENCED)
    leader.step()
    leader.see()
    leader.now_ms += GATHERING_MS
    if what == "member gone":
        led.isr_change = lambda *_: led.replicas_state.isr_change(0, lambda *_: True)
        leader.store.delete(BROKER.key(2))
        leader.see()
    assert settled(leader.step()) == [(0, "dropped")]
    assert leader.writes == []
    assert led.replicas_state.pending is None


def test_no_change_is_proposed_once_the_leadership_has_ended(leader) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.step()
    led.is_leading = False
    leader.pass_ms(GATHERING_MS)
    assert leader.writes == []
    assert led.replicas_state.pending is None


def test_a_proposal_outlives_its_leadership(leader) -> None:
    """A suspended partition goes on leading with this state once the proposal is settled."""
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.pass_ms(GATHERING_MS)
    led.is_leading = False
    (write,) = leader.writes
    assert settled(leader.answer(write)) == [(0, "won")]
    assert (led.isr, led.replicas_state.pending) == ([1, 2], None)


@pytest.mark.parametrize("what", ["elected", "deleted"])
def test_a_leadership_that_has_ended_by_the_reply_is_ended_once(leader, what: str) -> None:
    leader.create(1)
    led = leader.lead()
    leader.fetch(led, 2)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    if what == "elected":
        state = leader.stored()[0].changed(leader=2, leader_epoch=6, isr=(leader.members[2],))
        leader.store.put(leader.key(), state)
    else:
        leader.store.delete(leader.key())
    leader.answer(write)
    leader.see()
    leader.step()
    assert settled(leader.effects) == [(0, "lost")]
    assert [each for each in leader.effects if isinstance(each, Ended)] == [Ended(led)]


def test_all_partitions_are_checked_periodically_and_when_brokers_change(leader) -> None:
    leader.create(1)
    assert leader.step() == [CheckAll()], "the first image"
    for _ in range(2):
        assert leader.pass_ms(LAG_MAX_MS // 2 - 1) == []
        assert leader.pass_ms(1) == [CheckAll()]
    leader.store.commit(Txn(success=[Put(CLUSTER_ID.prefix, b"x")]))
    leader.see()
    assert leader.step() == [], "no broker has changed"
    leader.store.fence(*leader.members[3], "draining")
    leader.store.fence(*leader.members[3], ACTIVE)
    leader.see()
    assert leader.step() == [CheckAll()], "a proposal may have been lost in between"


@pytest.mark.parametrize(
    "what, reason",
    [
        ("registered", "broker 2 has registered again"),
        (
            "behind",
            f"broker 2 is behind by 3 records and has not caught up for {LAG_MAX_MS + 50} ms",
        ),
        ("never", "broker 2 is behind by 3 records and has not caught up yet"),
    ],
)
def test_it_is_known_why_a_member_leaves(leader, what: str, reason: str) -> None:
    leader.create(1, 2)
    led = leader.lead()
    led.append(3)
    if what == "registered":
        leader.members[2] = leader.store.start(2)
        leader.fetch(led, 2)
    elif what == "never":
        led.replicas_state.followers[2].caught_up_ms = -(1 << 62)
    if what == "behind":
        leader.now_ms = LAG_MAX_MS
    leader.see()
    leader.machine.check(led)
    leader.pass_ms(GATHERING_MS)
    (write,) = leader.writes
    (proposal,) = write.proposals.values()
    assert proposal.leaving == {2: reason}
    assert [broker_id for broker_id, _ in proposal.former_isr] == [1, 2]
