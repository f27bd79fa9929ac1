"""Gives leadership back to preferred leaders periodically.

A preferred replica that could lead in two checks counts as in sync in between. Source:
ReplicationControlManager.maybeBalancePartitionLeaders.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from logfleet.config.keys import BROKER_KEYS
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.election_writes import Imbalance, balance_steps
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.terms.effects import Emit, Report
from logfleet.controller.terms.operations import Operation, TermDecision
from logfleet.controller.terms.slices import Imbalances, Turns
from logfleet.metadata.image import ClusterImage

BALANCED_AT_ONCE: Final = 50
"""Partitions given back to their preferred leaders in one operation; Kafka's limit is 1,000."""
BALANCED: Final = "preferred replicas lead again"


class State(Enum):
    WAITING = "until the next check is due"
    CHECKING = "checks which partitions their first replica could lead but does not"
    SETTLING = "until they count as in sync"
    CONFIRMING = "checks them again"
    RETURNING = "has an operation in the term for some of them"
    OFF = "leaders are not balanced"


NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.WAITING: frozenset({State.CHECKING}),
    State.CHECKING: frozenset({State.WAITING, State.SETTLING}),
    State.SETTLING: frozenset({State.CONFIRMING}),
    State.CONFIRMING: frozenset({State.WAITING, State.RETURNING}),
    State.RETURNING: frozenset({State.RETURNING, State.WAITING}),
    State.OFF: frozenset(),
}


class Balance:
    """The balancing of one term. `operation`: for the term to carry out, once; then `answered`."""

    def __init__(
        self,
        epoch: int,
        static: Mapping[str, str],
        settled_ms: int,
        *,
        turns: Turns,
        emit: Emit,
        now_ms: int,
    ) -> None:
        layers = BrokerLayers(static)
        key = "auto.leader.rebalance.enable"
        is_enabled = BROKER_KEYS[key].parse(layers.effective_value(key)) is True
        interval_s = float(layers.effective_value("leader.imbalance.check.interval.seconds") or 0)
        self.operation: Operation[object] | None = None
        self.state = State.WAITING if is_enabled else State.OFF
        self._epoch = epoch
        self._interval_ms = int(1000 * interval_s)
        self._settled_ms = settled_ms
        self._turns = turns
        self._emit = emit
        self.due_ms = now_ms + self._interval_ms if is_enabled else None
        self._check: Imbalances | None = None
        self._found: Mapping[Imbalance, None] = {}
        self._settled: Sequence[Imbalance] = ()
        self._begun = 0

    def advance(self, image: ClusterImage, now_ms: int) -> None:
        """Begin what is due."""
        if self.due_ms is None or now_ms < self.due_ms:
            return
        self.due_ms = None
        self._enter(State.CHECKING if self.state is State.WAITING else State.CONFIRMING)
        self._check = Imbalances(image)
        self.turn_came(now_ms)

    def turn_came(self, now_ms: int) -> None:
        """Check the next partitions, if that is under way."""
        check = self._check
        if check is None:
            return
        check.collect()
        if not check.are_all:
            self._turns.ask()
            return
        self._check = None
        if self.state is State.CONFIRMING:
            self._settled = [each for each in self._found if each in check.found]
            self._begun = 0
            self._return_next(now_ms)
        elif check.found:
            self._found = check.found
            self._enter(State.SETTLING)
            self.due_ms = now_ms + self._settled_ms
        else:
            self._wait(now_ms)

    def answered(self, now_ms: int) -> None:
        """The term has carried out `operation`, or refused it."""
        self._return_next(now_ms)

    def _return_next(self, now_ms: int) -> None:
        some = self._settled[self._begun : self._begun + BALANCED_AT_ONCE]
        if some:
            self._enter(State.RETURNING)
            self._begun += len(some)
            self.operation = _balance(some)
        else:
            facts = {"partitions": len(self._settled), "epoch": self._epoch}
            self._emit(Report("info", "leaders_balanced", facts))
            self._wait(now_ms)

    def _wait(self, now_ms: int) -> None:
        self._enter(State.WAITING)
        self.due_ms = now_ms + self._interval_ms

    def _enter(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} to {state}"
        self.state = state


def _balance(settled: Sequence[Imbalance]) -> Operation[object]:
    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[object]:
        return TermDecision(
            pack(epoch, balance_steps(image, settled)), None, BALANCED, in_any_order=True
        )

    return decide
