"""Elects, where no replica is sure to hold every record, the one with the longest log.

These elections run beside the term's other work: nothing waits while brokers are asked
(`replication.longest_log` has the rule).
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.fencing import newcomers
from logfleet.controller.changes.election_writes import (
    LogEndsByPartition,
    PartitionId,
    ReplicasToAsk,
    election_steps,
    replicas_to_ask,
)
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.terms.effects import Emit, QueryLogEnds, Report
from logfleet.controller.terms.operations import Operation, TermDecision
from logfleet.controller.terms.slices import SLICE_PARTITIONS, Turns
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.packing import Step

AGAIN_MS: Final = 1_000
"""Pause before brokers are asked again: a needed one did not answer, or the cluster changed."""
CAUSE: Final = "no replica is sure to hold every record, and its log reaches furthest"


class State(Enum):
    WATCHING = "until the image changes, or brokers are to be asked again"
    FINDING = "finds the partitions without a leader in what changed"
    ASKING = "until the brokers have reported, or their time is up"
    ELECTING = "has an operation in the term"


NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.WATCHING: frozenset({State.FINDING}),
    State.FINDING: frozenset({State.WATCHING, State.ASKING}),
    State.ASKING: frozenset({State.ELECTING}),
    State.ELECTING: frozenset({State.WATCHING}),
}


class LongestLogs:
    """The elections of one term. `operation`: for the term to carry out, once; then `answered`.

    static: server.properties of the controller's broker.
    """

    def __init__(self, epoch: int, static: Mapping[str, str], turns: Turns, emit: Emit) -> None:
        self.operation: Operation[object] | None = None
        self.state = State.WATCHING
        self.due_ms: int | None = None
        self._epoch = epoch
        self._static = static
        self._turns = turns
        self._emit = emit
        self._changes = Changes(everything=True)
        self._image = ClusterImage()
        self._finding: Iterator[bytes] = iter(())
        self._leaderless: set[bytes] = set()
        self._queries = 0

    def changed(self, changes: Changes) -> None:
        """The image that `advance` gets next differs in this from the last one."""
        self._changes.add(changes)

    def advance(self, image: ClusterImage, now_ms: int) -> None:
        """Begin what is due. image: the newest."""
        is_due = self.due_ms is not None and now_ms >= self.due_ms
        if self.state is not State.WATCHING or not (is_due or self._changes != Changes()):
            return
        self.due_ms = None
        self._enter(State.FINDING)
        changes, self._changes = self._changes, Changes()
        self._image = image
        every = changes.everything
        self._finding = iter([each.id for each in image.topics()] if every else changes.topics)
        self.turn_came()

    def turn_came(self) -> None:
        """Check the next topics, if that is under way."""
        if self.state is not State.FINDING:
            return
        checked = 0
        for topic_id in self._finding:
            topic = self._image.topic_by_id(topic_id)
            if topic is not None and not all(each.has_leader for each in topic.partitions):
                self._leaderless.add(topic_id)
            else:
                self._leaderless.discard(topic_id)
            checked += 1 if topic is None else len(topic.partitions)
            if checked >= SLICE_PARTITIONS:
                self._turns.ask()
                return
        self._ask()

    def reported(self, number: int, found: LogEndsByPartition) -> None:
        """The result of a query. It counts only if it is the last one."""
        if self.state is State.ASKING and number == self._queries:
            self._enter(State.ELECTING)
            self.operation = _election(found)

    def answered(self, now_ms: int) -> None:
        """The term has carried out `operation`, or refused it."""
        self._enter(State.WATCHING)
        self.due_ms = now_ms + AGAIN_MS

    def _ask(self) -> None:
        asked = self._replicas_to_ask()
        if not asked:
            self._enter(State.WATCHING)
            return
        self._enter(State.ASKING)
        self._queries += 1
        facts = {"partitions": len(asked), "epoch": self._epoch}
        self._emit(Report("info", "log_ends_asked", facts))
        self._emit(QueryLogEnds(self._epoch, self._queries, self._image, asked))

    def _replicas_to_ask(self) -> ReplicasToAsk:
        """None while newcomers, whose logs may be longer, are not admitted."""
        image = self._image
        found: dict[PartitionId, Sequence[Broker]] = {}
        if not newcomers(image):
            layers = BrokerLayers(self._static, image.configs_of_broker(None).values)
            for topic_id in self._leaderless:
                topic = image.topic_by_id(topic_id)
                if topic is not None:
                    found.update(replicas_to_ask(image, topic, layers))
        return found

    def _enter(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} to {state}"
        self.state = state


def _election(answered: LogEndsByPartition) -> Operation[object]:
    indexes: dict[bytes, list[int]] = {}
    for topic_id, index in answered:
        indexes.setdefault(topic_id, []).append(index)

    def decide(image: ClusterImage, epoch: int, layers: BrokerLayers) -> TermDecision[object]:
        steps: list[Step] = []
        for topic_id, some in indexes.items():
            topic = image.topic_by_id(topic_id)
            if topic is not None and not newcomers(image):
                steps += election_steps(image, topic, layers, indexes=some, answered=answered)
        return TermDecision(pack(epoch, steps), None, CAUSE, in_any_order=True)

    return decide
