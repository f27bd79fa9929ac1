"""Which partitions a broker goes on leading while the metadata store does not answer it.

Until its lease's deadline, no other broker leads what this one leads. While the store is away no
keepalive is answered and the deadline passes, though nothing else is wrong: without the store no
broker is elected either. Kafka's brokers go on without their controllers, and Patroni's primaries
without their store if the other members agree ("DCS failsafe mode").

Past the deadline a broker goes on leading a partition if others confirmed it within the last
CONFIRMED_MS, in one of two ways:

- More than half of the other active brokers answer that the store does not answer them either: then
  no broker can be elected.
- Every other member of the ISR fetches from it in this leader epoch: a clean election takes one of
  them, and a broker stops fetching from its former leader before it leads. acks=all would be safe
  without this rule, as the high watermark needs these fetches. The rule bounds how old the data is
  that consumers, group members and acks=1 get.

All others are suspended: partitions whose ISR is this broker alone, and coordinators that can
commit nothing. If the store answers again and the registration still stands, suspended partitions
go on in the same leader epoch, and the broker keeps its broker epoch. If the registration has
ended, the broker leads nothing until it has registered again.

The shell of `Failsafe` calls `check` every CHECK_S, carries out the effects in their order, and
reports by `judged` when it has carried out `SuspendUnfollowed`. It may answer as a leader until the
lease's deadline, or until the time of the last `Extend` if that is later; every suspension comes
before the extension that it permits. Times in seconds are those of a lease's deadline, which go on
while the machine is suspended; times in milliseconds are monotonic.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, Protocol

import msgspec

from logfleet.metadata.image import ClusterImage
from logfleet.replication.leader import LeaderReplicas
from logfleet.types import BrokerEpoch, LeaderEpoch

CHECK_S: Final = 0.25
CONFIRMED_MS: Final = 2_000
"""Largest age of a follower's fetch or a peer's answer that counts.

Followers fetch at least every replica.fetch.wait.max.ms (0.5 s).
"""
EXTENSION_S: Final = 1.0
"""Time for which a check lets this broker answer past its lease's deadline.

Some checks may be late.
"""
SETTLING_MS: Final = 1_750
"""Time to wait after this process was stopped for a while.

By then followers have connected and fetched again (they pause for up to 1 s), and peers have
answered again.
"""
SILENT_SHARE: Final = 0.5
"""Share of the lease's time without an answered keepalive after which the store counts as silent.

Keepalives are sent after a third of it.
"""


class State(Enum):
    """What the registration allows now."""

    UNREGISTERED = "unregistered"
    ANSWERED = "answered"
    """The store answers keepalives."""
    SILENT = "silent"
    """It has not for a while, so the peers are asked. The lease's deadline is not near yet."""
    SETTLING = "settling"
    """Past the deadline, or nearly, but the process was stopped: what has arrived may be old.

    Nothing confirms anything yet, and nothing is answered.
    """
    CONFIRMING = "confirming"
    """Past the deadline, or nearly: this broker leads what others confirm."""


_BEFORE_DEADLINE: Final = frozenset({State.ANSWERED, State.SILENT})
PAST_DEADLINE: Final = frozenset({State.SETTLING, State.CONFIRMING})
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNREGISTERED: frozenset({State.UNREGISTERED, State.ANSWERED}),
    State.ANSWERED: frozenset(State),
    State.SILENT: frozenset(State),
    State.SETTLING: frozenset(State),
    State.CONFIRMING: frozenset(State),
}
"""A registration begins as ANSWERED; afterwards its state follows from the clocks alone."""


class LeaseTime(Protocol):
    """The lease of the registration, whose deadline moves with each answered keepalive."""

    @property
    def ttl_s(self) -> int: ...
    @property
    def deadline_s(self) -> float: ...


class AskPeers(msgspec.Struct, frozen=True):
    """Effect: go on asking these brokers whether the store answers them; see `peer_answered`."""

    peers: frozenset[int]


class StopAsking(msgspec.Struct, frozen=True):
    """Effect: ask no peer any more."""


class Began(msgspec.Struct, frozen=True):
    """Effect: report that this broker leads past its lease's deadline from now on."""

    silent_s: float


class Ended(msgspec.Struct, frozen=True):
    """Effect: report that the store answers again, and that the registration stands."""


class Resume(msgspec.Struct, frozen=True):
    """Effect: resume suspended partitions, by the newest image and in their leader epochs.

    since_ms: only those that are `is_followed` since then; None: all.
    """

    since_ms: int | None = None


class SuspendUnfollowed(msgspec.Struct, frozen=True):
    """Effect: suspend each partition led that is not `is_followed` since then; then `judged`."""

    since_ms: int


class Extend(msgspec.Struct, frozen=True):
    """Effect: answer as a leader until then, by the registration that was checked."""

    until_s: float


Effect = AskPeers | StopAsking | Began | Ended | Resume | SuspendUnfollowed | Extend


class Failsafe:
    """What a broker's registrations allow it, one after another.

    state: by the last event or check.
    """

    def __init__(self) -> None:
        self.state = State.UNREGISTERED
        self._checked_s = 0.0
        # messages that arrived before may have waited in a socket while the process was stopped
        self._counted_from_ms = 0
        self._judging: SuspendUnfollowed | None = None
        self._silent_ms: dict[int, int] = {}

    def registered(self) -> None:
        """Event: a registration begins."""
        self.state = State.ANSWERED

    def unregistered(self) -> None:
        """Event: the registration has ended, and with it all leadership."""
        self.state = State.UNREGISTERED

    def peer_answered(self, peer: int, silent_ms: int | None) -> None:
        """Event: a peer reports that the store was silent at that time; None: that it was not."""
        if silent_ms is None:
            self._silent_ms.pop(peer, None)
        else:
            self._silent_ms[peer] = silent_ms

    def check(
        self, now_s: float, now_ms: int, lease: LeaseTime | None, peers: frozenset[int]
    ) -> list[Effect]:
        """Event: time has passed. lease: None without a registration. peers: `peers_of`."""
        if now_s - self._checked_s > EXTENSION_S:
            self._counted_from_ms = now_ms
        self._checked_s, self._judging = now_s, None
        before, state = self.state, self._state_at(now_s, now_ms, lease)
        assert state in TRANSITIONS[before], f"{before} becomes {state}"
        self.state = state
        if state in {State.UNREGISTERED, State.ANSWERED}:
            self._silent_ms.clear()
            effects: list[Effect] = [StopAsking()]
        else:
            effects = [AskPeers(peers)]
        if state in _BEFORE_DEADLINE:
            effects += [Ended(), Resume()] if before in PAST_DEADLINE else [Resume()]
        elif state in PAST_DEADLINE and before not in PAST_DEADLINE:
            assert lease is not None
            effects.append(Began(silent_s(now_s, lease)))
        if state is State.CONFIRMING:
            since_ms = max(now_ms - CONFIRMED_MS, self._counted_from_ms)
            if self.is_majority_silent(since_ms, peers):
                effects += [Resume(), Extend(now_s + EXTENSION_S)]
            else:
                self._judging = SuspendUnfollowed(since_ms)
                effects.append(self._judging)
        return effects

    def judged(self, suspended: int) -> list[Effect]:
        """Event: the last `SuspendUnfollowed` is carried out, and suspended so many partitions."""
        judging, self._judging = self._judging, None
        if judging is None or self.state is not State.CONFIRMING:
            return []  # the registration has ended meanwhile
        extend = Extend(self._checked_s + EXTENSION_S)
        return [extend] if suspended else [Resume(judging.since_ms), extend]

    def is_majority_silent(self, since_ms: int, peers: Collection[int]) -> bool:
        """Whether most of the peers have reported a silent store since then."""
        silent = [peer for peer, at_ms in self._silent_ms.items() if at_ms >= since_ms]
        return is_majority(silent, peers)

    def _state_at(self, now_s: float, now_ms: int, lease: LeaseTime | None) -> State:
        if lease is None:
            return State.UNREGISTERED
        if now_s + 2 * CHECK_S < lease.deadline_s:
            return State.SILENT if silent_s(now_s, lease) else State.ANSWERED
        is_settling = now_ms - self._counted_from_ms < SETTLING_MS
        return State.SETTLING if is_settling else State.CONFIRMING


def silent_s(now_s: float, lease: LeaseTime) -> float:
    """Time since the store last answered a keepalive, 0 while that is normal."""
    unanswered_s = now_s - (lease.deadline_s - lease.ttl_s)
    return unanswered_s if unanswered_s > SILENT_SHARE * lease.ttl_s else 0.0


def peers_of(image: ClusterImage, me: int) -> frozenset[int]:
    """The other active brokers."""
    return frozenset(each.id for each in image.brokers.values() if each.is_active and each.id != me)


def is_majority(silent: Collection[int], peers: Collection[int]) -> bool:
    """Whether more than half of the peers are among `silent`.

    Without peers there is no majority: none can confirm anything.
    """
    return 2 * len(set(silent) & set(peers)) > len(peers)


def is_followed(
    replicas: LeaderReplicas, follows: Callable[[int, BrokerEpoch, LeaderEpoch], bool]
) -> bool:
    """Whether all brokers that a clean election could take follow this leader; False if none could.

    follows: whether that registration has fetched the partition in that leader epoch since the time
    that counts.
    """
    if replicas.has_eligible:
        return False
    others, leader_epoch = replicas.others_in_sync(), replicas.state.leader_epoch
    return bool(others) and all(follows(*member, leader_epoch) for member in others)
