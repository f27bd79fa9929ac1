"""What a broker reports about a peer whose process it watches by an idle connection.

A refused connection is reported only if the peer has accepted one before: a broker that starts may
not serve yet. A peer that accepts again is no suspect, so the report is withdrawn. A connection
that fails in any other way proves nothing and changes nothing.

The shell connects to the peer, again and again. It reports each outcome by `happened` and carries
out the acts in their order. Once the store has accepted a report or a withdrawal, it reports that.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """What is known of the peer's process."""

    UNSEEN = "unseen"
    """It has not accepted a connection yet."""
    SERVING = "serving"
    REFUSING = "refusing"
    """It refuses connections, and the store has not accepted the report."""
    REPORTED = "reported"
    BACK = "back"
    """It accepts connections, and the store has not accepted the withdrawal of the report."""


class Event(Enum):
    """The outcome of a connection or of a write."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    REPORT_WRITTEN = "report written"
    WITHDRAWAL_WRITTEN = "withdrawal written"


class Act(Enum):
    """What the shell does."""

    DEPOSE = "depose"
    """If the peer is the controller, let another broker be elected."""
    REPORT = "report"
    WITHDRAW = "withdraw"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.UNSEEN, Event.ACCEPTED): State.SERVING,
    (State.UNSEEN, Event.REFUSED): State.UNSEEN,
    (State.SERVING, Event.ACCEPTED): State.SERVING,
    (State.SERVING, Event.REFUSED): State.REFUSING,
    (State.REFUSING, Event.ACCEPTED): State.SERVING,
    (State.REFUSING, Event.REFUSED): State.REFUSING,
    (State.REFUSING, Event.REPORT_WRITTEN): State.REPORTED,
    (State.REPORTED, Event.ACCEPTED): State.BACK,
    (State.REPORTED, Event.REFUSED): State.REPORTED,
    (State.BACK, Event.ACCEPTED): State.BACK,
    (State.BACK, Event.REFUSED): State.REPORTED,
    (State.BACK, Event.WITHDRAWAL_WRITTEN): State.SERVING,
}
"""All other pairs are bugs."""

_ACTS: Final[Mapping[tuple[Event, State], tuple[Act, ...]]] = {
    (Event.ACCEPTED, State.BACK): (Act.WITHDRAW,),
    (Event.REFUSED, State.REFUSING): (Act.DEPOSE, Act.REPORT),
    (Event.REFUSED, State.REPORTED): (Act.DEPOSE,),
}
"""By the event and the state after it."""


class WatchedPeer:
    """One registration of a peer."""

    def __init__(self) -> None:
        self.state = State.UNSEEN

    def happened(self, event: Event) -> tuple[Act, ...]:
        """Return what to do."""
        after = TRANSITIONS.get((self.state, event))
        assert after is not None, f"{event} while {self.state}"
        self.state = after
        return _ACTS.get((event, after), ())
