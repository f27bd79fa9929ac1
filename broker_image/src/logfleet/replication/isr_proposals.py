"""The ISR changes that this broker proposes for the partitions that it leads.

A leader's `isr_change` begins a proposal. The proposal ends with the store's definite reply to the
transaction that writes it, whatever becomes of the leader meanwhile: until then a member that it
adds may be in the ISR already (KIP-497). `TRANSITIONS` has every state and what may follow. Which
keys a transaction compares is in `logfleet.replication.isr_write`. Kafka's part of this kind is
AlterPartitionManager, which sends proposals to the controller.

The shell of `IsrProposals` owes three things:

1. It calls `step` after an event, after a new image, and at `wake_ms`. Then it carries out the
   effects in their order.
2. For each `Send` it calls `MetadataStore.txn` once and reports the outcome by `replied`. Other
   effects do not wait for it.
3. It reports every outcome, even a late one, and even if another broker leads. If the store was
   replaced, the broker ends.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from logfleet.metadata.attempts import Attempts, Unanswered
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.topics import PARTITION, PartitionValue
from logfleet.metadata.store import (
    Put,
    StoreRefused,
    Txn,
    TxnResult,
)
from logfleet.replication.isr_write import (
    CHANGES_MAX,
    Alone,
    Lost,
    Won,
    is_shown,
    isr_txns,
    read_answer,
)
from logfleet.replication.leader import NEVER_MS, IsrChange, LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch

GATHERING_MS: Final = 50
"""Time that a partition waits for others, to share a transaction with them.

A broker that comes back is in sync with many partitions at about the same time.
"""

Reply = TxnResult | Unanswered | StoreRefused
"""The outcome of one attempt. Only a TxnResult is definite."""


class State(Enum):
    """The state of a proposal."""

    GATHERED = "gathered"
    """It is in no transaction yet."""
    ALONE = "alone"
    """Its transaction failed because of another proposal: it gets one of its own."""
    SENT = "sent"
    PAUSED = "paused"
    """The last attempt has no definite outcome: the same transaction is sent again."""
    UNSHOWN = "unshown"
    """It was not written and never will be. By the image it would be proposed, and lost, again."""
    WON = "won"
    LOST = "lost"
    DROPPED = "dropped"
    """The image forbids it, so it was not sent."""


class Event(Enum):
    """What moves a proposal to another state."""

    SEND = "send"
    FORBIDDEN = "forbidden"
    WRITTEN = "written"
    COMPARE_FAILED = "compare failed"
    OTHER_FAILED = "other failed"
    UNANSWERED = "unanswered"
    REFUSED = "refused"
    PAUSE_OVER = "pause over"
    CAUSE_SHOWN = "cause shown"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.GATHERED, Event.SEND): State.SENT,
    (State.GATHERED, Event.FORBIDDEN): State.DROPPED,
    (State.ALONE, Event.SEND): State.SENT,
    (State.ALONE, Event.FORBIDDEN): State.DROPPED,
    (State.SENT, Event.WRITTEN): State.WON,
    (State.SENT, Event.COMPARE_FAILED): State.UNSHOWN,
    (State.SENT, Event.OTHER_FAILED): State.ALONE,
    (State.SENT, Event.UNANSWERED): State.PAUSED,
    (State.SENT, Event.REFUSED): State.PAUSED,
    (State.PAUSED, Event.PAUSE_OVER): State.SENT,
    (State.UNSHOWN, Event.CAUSE_SHOWN): State.LOST,
}
"""All other pairs are bugs."""


class LedPartition(Protocol):
    """A partition that this broker leads, or led: a proposal outlives the leadership.

    The methods are those of LeaderReplicas; they also wake what waits for the high watermark.
    """

    @property
    def topic_id(self) -> bytes: ...
    @property
    def index(self) -> int: ...
    @property
    def is_leading(self) -> bool: ...
    @property
    def replicas_state(self) -> LeaderReplicas: ...
    def isr_change(
        self, now_ms: int, is_eligible: Callable[[int, BrokerEpoch], bool]
    ) -> IsrChange | None: ...
    def isr_won(self, revision: int) -> None: ...
    def isr_lost(self, state: PartitionValue | None, revision: int) -> bool: ...


P = TypeVar("P", bound=LedPartition)


class Proposal(Generic[P]):
    """One ISR change on its way to the store.

    former_isr: the ISR before it. leaving: for each broker that leaves the ISR, the reason.
    """

    __slots__ = ("change", "former_isr", "key", "leaving", "partition", "state")

    def __init__(self, partition: P, change: IsrChange, now_ms: int) -> None:
        replicas = partition.replicas_state
        self.partition = partition
        self.key = PARTITION.key((partition.topic_id, partition.index))
        self.change = change
        self.former_isr = replicas.state.isr
        self.leaving = {
            member[0]: _leaving_reason(replicas, member, now_ms)
            for member in self.former_isr
            if member not in change.state.isr
        }
        self.state = State.GATHERED

    def follow(self, event: Event) -> None:
        """Move to the next state."""
        after = TRANSITIONS.get((self.state, event))
        assert after is not None, f"{self.key}: {event} while {self.state}"
        self.state = after


class Write(Generic[P]):
    """A transaction that is sent until its outcome is definite, and its proposals by their keys.

    pause_ms: the pause after the last attempt. resend_ms: when that ends.
    """

    __slots__ = ("attempts", "pause_ms", "proposals", "resend_ms", "txn")

    def __init__(self, txn: Txn, proposals: dict[str, Proposal[P]]) -> None:
        self.txn = txn
        self.proposals = proposals
        self.attempts = Attempts()
        self.pause_ms = self.resend_ms = 0

    def follow(self, event: Event) -> None:
        for proposal in self.proposals.values():
            proposal.follow(event)

    def pause(self, reply: Unanswered | StoreRefused, now_ms: int) -> None:
        self.follow(Event.REFUSED if isinstance(reply, StoreRefused) else Event.UNANSWERED)
        self.pause_ms = self.attempts.failed(reply)
        self.resend_ms = now_ms + self.pause_ms


class Send(msgspec.Struct, Generic[P], frozen=True):
    """Effect: send the transaction once, and report the outcome by `replied`."""

    write: Write[P]


class Repeated(msgspec.Struct, Generic[P], frozen=True):
    """Effect: log that the write is sent again after its pause, because of this outcome."""

    write: Write[P]
    reply: Unanswered | StoreRefused


class Accepted(msgspec.Struct, Generic[P], frozen=True):
    """Effect: log the definite outcome. is_written: whether the compares held."""

    write: Write[P]
    is_written: bool


class Settled(msgspec.Struct, Generic[P], frozen=True):
    """Effect: report a proposal that is won, lost or dropped. Its partition knows it already."""

    proposal: Proposal[P]


class Ended(msgspec.Struct, Generic[P], frozen=True):
    """Effect: stop leading the partition. By the store's reply its leader epoch has ended."""

    partition: P


class CheckAll(msgspec.Struct, frozen=True):
    """Effect: call `check` with each partition that this broker leads and that has followers."""


Effect = Send[P] | Repeated[P] | Accepted[P] | Settled[P] | Ended[P] | CheckAll


class _Unshown(msgspec.Struct, Generic[P], frozen=True):
    """The proposals that a failed transaction lost; they wait for an image that shows the cause."""

    txn: Txn
    result: TxnResult
    lost: list[tuple[Proposal[P], Lost]]


class IsrProposals(Generic[P]):
    """All proposals of a broker. lag_max_ms: replica.lag.time.max.ms.

    wake_ms: when to call `step` at the latest, on the clock of `now_ms` (monotonic).
    """

    def __init__(self, lag_max_ms: int) -> None:
        self.wake_ms = 0
        self._period_ms = max(1, lag_max_ms // 2)
        self._check_all_ms: int | None = None
        self._image = ClusterImage()
        self._due: dict[P, None] = {}
        self._round: list[P] = []
        self._round_ms: int | None = None
        self._gathered: dict[str, Proposal[P]] = {}
        self._alone: list[Proposal[P]] = []
        self._replies: list[tuple[Write[P], Reply]] = []
        self._paused: list[Write[P]] = []
        self._unchecked: list[_Unshown[P]] = []
        self._unshown: list[_Unshown[P]] = []
        self._effects: list[Effect[P]] = []

    def check(self, partition: P) -> bool:
        """Event: the partition's ISR may have to change. Returns whether to call `step`."""
        is_first = not self._due
        self._due[partition] = None
        return is_first

    def replied(self, write: Write[P], reply: Reply) -> None:
        """Event: the outcome of an attempt."""
        self._replies.append((write, reply))

    def step(self, now_ms: int, image: ClusterImage, me: Member | None) -> list[Effect[P]]:
        """Do what is due, and return the effects.

        image: the newest. me: this broker's registration, None while there is none. One step works
        on CHANGES_MAX partitions at most; `wake_ms` is `now_ms` if more are due.
        """
        replies, self._replies = self._replies, []
        for write, reply in replies:
            self._take(write, reply, now_ms)
        self._settle_shown(image)
        if self._check_all_ms is None:
            self._check_all_ms = now_ms + self._period_ms
        is_period_over = now_ms >= self._check_all_ms
        if is_period_over or _brokers_changed(self._image, image):
            self._effects.append(CheckAll())
        if is_period_over:
            self._check_all_ms = now_ms + self._period_ms
        self._image = image
        self._resend(now_ms)
        self._propose(now_ms, image)
        alone, self._alone = self._alone, []
        for proposal in alone:
            self._send({proposal.key: proposal}, image, me)
        if self._gathered and (len(self._gathered) >= CHANGES_MAX or not self._round):
            gathered, self._gathered = self._gathered, {}
            self._send(gathered, image, me)
        if self._due and not self._round and self._round_ms is None:
            self._round_ms = now_ms + GATHERING_MS
        self.wake_ms = self._next_ms(now_ms, self._check_all_ms)
        effects, self._effects = self._effects, []
        return effects

    def _take(self, write: Write[P], reply: Reply, now_ms: int) -> None:
        if not isinstance(reply, TxnResult):
            write.pause(reply, now_ms)
            self._paused.append(write)
            self._effects.append(Repeated(write, reply))
            return
        self._effects.append(Accepted(write, reply.succeeded))
        lost: list[tuple[Proposal[P], Lost]] = []
        changes = {key: proposal.change for key, proposal in write.proposals.items()}
        for key, outcome in read_answer(write.txn, reply, changes).items():
            proposal = write.proposals[key]
            match outcome:
                case Won(revision):
                    proposal.follow(Event.WRITTEN)
                    proposal.partition.isr_won(revision)
                    self._effects.append(Settled(proposal))
                case Alone():
                    proposal.follow(Event.OTHER_FAILED)
                    self._alone.append(proposal)
                case Lost():
                    proposal.follow(Event.COMPARE_FAILED)
                    lost.append((proposal, outcome))
        if lost:
            self._unchecked.append(_Unshown(write.txn, reply, lost))

    def _settle_shown(self, image: ClusterImage) -> None:
        unchecked = self._unchecked
        if image is not self._image:
            unchecked, self._unshown = self._unshown + unchecked, []
        self._unchecked = []
        for each in unchecked:
            if not is_shown(image, each.txn, each.result):
                self._unshown.append(each)
                continue
            for proposal, outcome in each.lost:
                proposal.follow(Event.CAUSE_SHOWN)
                self._effects.append(Settled(proposal))
                partition = proposal.partition
                goes_on = partition.isr_lost(outcome.state, outcome.revision)
                if not goes_on and partition.is_leading:
                    self._effects.append(Ended(partition))

    def _resend(self, now_ms: int) -> None:
        paused, self._paused = self._paused, []
        for write in paused:
            if write.resend_ms > now_ms:
                self._paused.append(write)
            else:
                write.follow(Event.PAUSE_OVER)
                self._effects.append(Send(write))

    def _propose(self, now_ms: int, image: ClusterImage) -> None:
        """Ask the partitions of the present round for their ISR changes."""
        if self._round_ms is not None and now_ms >= self._round_ms:
            self._round, self._due, self._round_ms = [*reversed(self._due)], {}, None
        for _ in range(min(CHANGES_MAX, len(self._round))):
            partition = self._round.pop()
            if not partition.is_leading:
                continue
            change = partition.isr_change(now_ms, _eligibility(image, partition))
            if change is not None:
                proposal = Proposal(partition, change, now_ms)
                assert proposal.key not in self._gathered, f"{proposal.key} is led twice"
                self._gathered[proposal.key] = proposal

    def _send(
        self, proposals: Mapping[str, Proposal[P]], image: ClusterImage, me: Member | None
    ) -> None:
        """Send these proposals; drop those that the image forbids."""
        unsent = dict(proposals)
        changes = {key: proposal.change for key, proposal in proposals.items()}
        for txn in [] if me is None else isr_txns(image, me, changes):
            put_keys = [put.key for put in txn.success if isinstance(put, Put)]
            write = Write(txn, {key: unsent.pop(key) for key in put_keys})
            write.follow(Event.SEND)
            self._effects.append(Send(write))
        for proposal in unsent.values():
            proposal.follow(Event.FORBIDDEN)
            replicas = proposal.partition.replicas_state
            proposal.partition.isr_lost(replicas.state, replicas.revision)
            self._effects.append(Settled(proposal))

    def _next_ms(self, now_ms: int, check_all_ms: int) -> int:
        if self._round:
            return now_ms
        round_ms = check_all_ms if self._round_ms is None else self._round_ms
        return min(check_all_ms, round_ms, *(write.resend_ms for write in self._paused))


def _brokers_changed(before: ClusterImage, after: ClusterImage) -> bool:
    """Whether a broker may have become active: it does not fetch again while nothing is new.

    A fence that has changed and changed back counts: a proposal may have been lost in between.
    """
    return after is not before and (
        after.brokers != before.brokers or after.fences != before.fences
    )


def _leaving_reason(replicas: LeaderReplicas, member: Member, now_ms: int) -> str:
    broker_id, broker_epoch = member
    follower = replicas.followers[broker_id]
    if follower.broker_epoch != broker_epoch:
        return f"broker {broker_id} has registered again"
    never = follower.caught_up_ms == NEVER_MS
    since = "yet" if never else f"for {now_ms - follower.caught_up_ms} ms"
    lag = replicas.lag(broker_id)
    return f"broker {broker_id} is behind by {lag} records and has not caught up {since}"


def _eligibility(
    image: ClusterImage, partition: LedPartition
) -> Callable[[int, BrokerEpoch], bool]:
    """The registrations that may join the ISR: active ones whose disk works for this partition."""

    def is_eligible(broker_id: int, broker_epoch: BrokerEpoch) -> bool:
        broker = image.brokers.get(broker_id)
        return (
            broker is not None
            and broker.epoch == broker_epoch
            and broker.is_active
            and not image.is_offline(broker_id, partition.topic_id, partition.index)
        )

    return is_eligible
