"""Converges the cluster: fences brokers that are gone, elects, admits newcomers, lets brokers go.

See logfleet.controller.brokers.fencing for why in this order. One pass at a time; each phase of it
begins when the image shows all writes of the phase before. A pass whose write loses a conflict is
given up, and begins again by a newer image.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers import leaving
from logfleet.controller.brokers.fencing import admission_steps, fence_steps, newcomers
from logfleet.controller.brokers.internal_topics import raising_steps
from logfleet.controller.brokers.stop_check import Objection
from logfleet.controller.brokers.vanishing import Hold, RecentBrokers, hold
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import remove_unfinished
from logfleet.controller.terms.decisions import broker_kept
from logfleet.controller.terms.effects import Emit, Record, Report
from logfleet.controller.terms.events import Now
from logfleet.controller.terms.slices import Elections, Turns
from logfleet.controller.terms.writes import TermWrites
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Txn
from logfleet.telemetry.decisions import Decision, Kind


class Phase(Enum):
    OVER = "no pass is under way"
    FENCING = "fences brokers that are gone"
    REMOVING = "removes topics that a former controller left half-made"
    SWEEPING = "takes registrations that have ended out of all partitions, and elects"
    ADMITTING = "makes newcomers active"
    ELECTING = "elects again, now that they are active"
    RAISING = "gives internal topics their configured replicas"
    DRAINING = "lets a broker leave"


NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.OVER: frozenset({Phase.FENCING}),
    Phase.FENCING: frozenset({Phase.REMOVING, Phase.OVER}),
    Phase.REMOVING: frozenset({Phase.SWEEPING, Phase.OVER}),
    Phase.SWEEPING: frozenset({Phase.ADMITTING, Phase.RAISING, Phase.OVER}),
    Phase.ADMITTING: frozenset({Phase.ELECTING, Phase.OVER}),
    Phase.ELECTING: frozenset({Phase.RAISING, Phase.OVER}),
    Phase.RAISING: frozenset({Phase.DRAINING, Phase.OVER}),
    Phase.DRAINING: frozenset({Phase.OVER}),
}


class ElectionHold:
    """Whether elections wait for vanished brokers to register again.

    due_ms: when to ask again, though no image comes.
    """

    def __init__(self, epoch: int, recent: RecentBrokers, emit: Emit) -> None:
        self._epoch = epoch
        self._recent = recent
        self._emit = emit
        self._hold: Hold | None = None
        self.due_ms: int | None = None

    def lasts(self, image: ClusterImage, now_ms: int) -> bool:
        before = self._hold
        self._hold = hold(before, self._recent.within(now_ms), image.brokers, now_ms)
        if self._hold is None or now_ms >= self._hold.until_ms:
            self.due_ms = None
            return False
        if before is None:
            why = self._hold.why
            self._emit(Report("warning", "elections_held", {"reason": why, "epoch": self._epoch}))
            self._emit(Record(Decision(Kind.ELECTIONS_HELD, why)))
        self.due_ms = self._hold.until_ms
        return True


class Convergence:
    """All passes of one term. phase: of the present one.

    is_complete: the last pass left nothing to do in the image that it ended with.
    """

    def __init__(
        self,
        epoch: int,
        static: Mapping[str, str],
        election_hold: ElectionHold,
        turns: Turns,
        emit: Emit,
    ) -> None:
        self.phase = Phase.OVER
        self.is_complete = False
        self._epoch = epoch
        self._static = static
        self._hold = election_hold
        self._turns = turns
        self._emit = emit
        self._objections: dict[int, Objection] = {}
        self._due = Changes()
        self._swept = ClusterImage()
        self._new: list[Broker] = []
        self._elections: Elections | None = None
        self._raised = 0
        self._draining: int | None = None

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.OVER

    def begin(self, image: ClusterImage, due: Changes, writes: TermWrites) -> None:
        """Begin a pass. due: what may differ from what it should be."""
        self.is_complete = False
        self._due = due
        self._enter(Phase.FENCING)
        writes.begin(image, self._pack(fence_steps(image)))

    def give_up(self) -> None:
        """A write has failed."""
        self._elections = None
        self._enter(Phase.OVER)

    def elect(self, writes: TermWrites) -> None:
        """Others had their turn: go on with the elections, if these are not all begun."""
        elections = self._elections
        if elections is not None and not elections.are_done and writes.have_room:
            writes.add(self._pack(elections.next_steps()))

    def has_written(self, writes: TermWrites) -> bool:
        """Whether all writes of the phase are in the image, or have failed."""
        elections = self._elections
        if elections is not None and not elections.are_done:
            if writes.have_room:
                self._turns.ask()
            return False
        return writes.are_done

    def advance(self, image: ClusterImage, writes: TermWrites, now: Now) -> None:
        """Begin the next phase: the present one `has_written`, and nothing failed.

        image: the newest.
        """
        match self.phase:
            case Phase.FENCING:
                self._remove_unfinished(image, writes, now)
            case Phase.REMOVING:
                self._sweep(writes, now)
            case Phase.SWEEPING:
                self._admit(image, writes)
            case Phase.ADMITTING:
                self._elect(Phase.ELECTING, image, writes, now)
            case Phase.ELECTING:
                self._count_elected()
                self._raise_internal_topics(image, writes)
            case Phase.RAISING:
                self._let_leave(image, writes)
            case Phase.DRAINING:
                self._complete()
            case Phase.OVER:
                raise AssertionError("no pass is under way")

    # --- what begins a phase

    def _remove_unfinished(self, image: ClusterImage, writes: TermWrites, now: Now) -> None:
        """An election compares the fence, so it needs the image with the revision that wrote it."""
        if self._hold.lasts(image, now.ms):
            self._enter(Phase.OVER)  # more brokers have vanished meanwhile
            return
        self._swept = image
        self._enter(Phase.REMOVING)
        txns = []
        for topic_id in image.unfinished:
            topic = image.entries.get(topic_id)
            assert topic is not None, "what is unfinished is an entry"
            txns.append(remove_unfinished(self._epoch, topic))
        writes.begin(image, txns, in_order=True)

    def _sweep(self, writes: TermWrites, now: Now) -> None:
        image, due = self._swept, self._due
        self._new = newcomers(image)
        if due.everything or due.brokers or due.broker_configs or self._new:
            due.topics = {topic.id for topic in image.topics()}
        self._elect(Phase.SWEEPING, image, writes, now)

    def _elect(self, phase: Phase, image: ClusterImage, writes: TermWrites, now: Now) -> None:
        self._enter(phase)
        layers = self._layers(image)
        self._elections = Elections(image, self._due.topics, layers, now.wall_ms)
        writes.begin(image, ())
        self.elect(writes)

    def _admit(self, image: ClusterImage, writes: TermWrites) -> None:
        """Newcomers are admitted only by an image in which nothing was left to change."""
        elected = self._count_elected()
        if not self._new:
            self._raise_internal_topics(image, writes)
        elif not is_swept(elected):
            self._enter(Phase.OVER)
        else:
            self._enter(Phase.ADMITTING)
            writes.begin(image, self._pack(admission_steps(self._swept)))

    def _count_elected(self) -> int:
        assert self._elections is not None
        elected, self._elections = self._elections.elected, None
        if elected:
            facts = {"partitions": elected, "epoch": self._epoch}
            self._emit(Report("info", "partitions_elected", facts))
        return elected

    def _raise_internal_topics(self, image: ClusterImage, writes: TermWrites) -> None:
        self._enter(Phase.RAISING)
        steps = tuple(raising_steps(image, self._layers(image)))
        self._raised = len(steps)
        writes.begin(image, self._pack(steps))

    def _let_leave(self, image: ClusterImage, writes: TermWrites) -> None:
        """Begin to drain a broker that asked to leave, unless a partition objects.

        Once the image shows that a broker is draining, its partitions get other leaders.
        """
        if self._raised:
            facts = {"partitions": self._raised, "epoch": self._epoch}
            self._emit(Report("info", "internal_topics_raised", facts))
        self._enter(Phase.DRAINING)
        kept: dict[int, Objection] = {}
        steps: list[Step] = []
        self._draining = None
        for broker_id, answer in leaving.decide(image):
            if isinstance(answer, Step):
                self._draining = broker_id
                steps.append(answer)
                continue
            kept[broker_id] = answer
            if self._objections.get(broker_id) != answer:
                reason = str(answer)
                self._emit(Report("info", "broker_kept", {"broker": broker_id, "reason": reason}))
                self._emit(Record(broker_kept(broker_id, answer)))
        self._objections = kept
        writes.begin(image, self._pack(steps))

    def _complete(self) -> None:
        if self._draining is not None:
            facts = {"broker": self._draining, "epoch": self._epoch}
            self._emit(Report("info", "broker_draining", facts))
        self.is_complete = True
        self._enter(Phase.OVER)

    def _pack(self, steps: Iterable[Step]) -> tuple[Txn, ...]:
        return pack(self._epoch, steps)

    def _layers(self, image: ClusterImage) -> BrokerLayers:
        return BrokerLayers(self._static, image.configs_of_broker(None).values)

    def _enter(self, phase: Phase) -> None:
        assert phase in NEXT[self.phase], f"{self.phase} to {phase}"
        self.phase = phase


def is_swept(elected: int) -> bool:
    """Whether the elections left every partition as it should be, so that newcomers may come in."""
    return elected == 0
