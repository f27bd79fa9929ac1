from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from logfleet.controller.brokers.watched_peer import TRANSITIONS, Act, Event, State, WatchedPeer


@pytest.mark.parametrize("state, event", list(product(State, Event)))
def test_a_peer_follows_the_table_and_nothing_else(state: State, event: Event) -> None:
    peer = WatchedPeer()
    peer.state = state
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(AssertionError, match=f"{event} while {state}"):
            peer.happened(event)
    else:
        peer.happened(event)
        assert peer.state is after


@pytest.mark.parametrize(
    "events, acts",
    [
        ("refused", [()]),
        ("accepted, refused", [(), (Act.DEPOSE, Act.REPORT)]),
        ("accepted, refused, refused", [(), (Act.DEPOSE, Act.REPORT), (Act.DEPOSE, Act.REPORT)]),
        (
            "accepted, refused, report written, refused, accepted, withdrawal written, accepted",
            [(), (Act.DEPOSE, Act.REPORT), (), (Act.DEPOSE,), (Act.WITHDRAW,), (), ()],
        ),
        ("accepted, refused, accepted", [(), (Act.DEPOSE, Act.REPORT), ()]),
    ],
)
def test_it_is_reported_once_it_refuses_and_no_more_once_it_is_back(
    events: str, acts: list[tuple[Act, ...]]
) -> None:
    peer = WatchedPeer()
    assert [peer.happened(Event(each)) for each in events.split(", ")] == acts


class Peers(RuleBasedStateMachine):
    """Whatever a peer does and whichever writes are accepted: the store has a report, or it has not."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = WatchedPeer()
        self.has_accepted = self.is_reported = self.is_serving = False

    @rule(is_accepted=st.booleans(), is_written=st.booleans())
    def connect(self, *, is_accepted: bool, is_written: bool) -> None:
        self.is_serving = is_accepted
        acts = self.peer.happened(Event.ACCEPTED if is_accepted else Event.REFUSED)
        self.has_accepted |= is_accepted
        assert (Act.DEPOSE in acts) is (self.has_accepted and not is_accepted)
        if Act.REPORT in acts:
            assert self.has_accepted
            assert not self.is_reported
            assert not is_accepted
            if is_written:
                self.peer.happened(Event.REPORT_WRITTEN)
                self.is_reported = True
        if Act.WITHDRAW in acts:
            assert self.is_reported
            assert is_accepted
            if is_written:
                self.peer.happened(Event.WITHDRAWAL_WRITTEN)
                self.is_reported = False

    @invariant()
    def the_state_has_the_report(self) -> None:
        assert (self.peer.state in {State.REPORTED, State.BACK}) is self.is_reported
        if self.has_accepted:
            assert (self.peer.state in {State.SERVING, State.BACK}) is self.is_serving


Peers.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestPeers = Peers.TestCase
