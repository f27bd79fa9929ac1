"""Replicas on brokers, and their moves: `logfleet_operator.clusters.moves.Movers` in memory."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from logfleet.balance.load import BrokerLoad, Load, PartitionLoad, Plan
from logfleet.balance.planner import plan
from logfleet.balance.rebalancing import Goal, Progress
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet_operator.clusters.moves import MovesUnavailable

Result = TypeVar("Result")
STEP = 2
"""Replicas that a step moves."""


class Replicas:
    """counts: by id of registered brokers. cordoned: ids. answers: False while no broker answers.

    fewest: brokers that are needed for all that there is. running: ids of the brokers that run.
    """

    def __init__(
        self,
        call: Callable[[str, Callable[[], Any]], Any],
        changed: Callable[[], None],
        running: Callable[[], Collection[int]],
    ) -> None:
        self._call = call
        self._changed = changed
        self._running = running
        self.counts: dict[int, int] = {}
        self.cordoned: set[int] = set()
        self.forgotten: list[int] = []
        self.answers = True
        self.feature_level = FeatureLevel(2, 2)
        self.raises: list[int] = []
        self.fewest = 1
        self.throttles: set[int | None] = set()
        self.called_back = 0

    async def replica_counts(self, bootstrap: str) -> Mapping[int, int]:
        assert bootstrap
        return self._do("held", lambda: dict(self.counts))

    async def step(self, bootstrap: str, goal: Goal) -> Progress:
        assert bootstrap
        return self._do("move", lambda: self._step(goal))

    async def propose(self, bootstrap: str, goal: Goal) -> Plan:
        assert bootstrap
        assert not goal.leaving, "that is the Cluster's own affair"
        return self._do("plan", lambda: plan(self._load()))

    async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
        assert bootstrap
        assert goal.throttle is not None, "else throttles stay"

        def act() -> Sequence[str]:
            self.called_back += 1
            return []

        return self._do("call back", act)

    async def uncordon(self, bootstrap: str, broker_ids: Collection[int]) -> None:
        assert bootstrap
        self._do("take back", lambda: self.cordoned.difference_update(broker_ids))

    async def unregister(self, bootstrap: str, broker_id: int) -> None:
        assert bootstrap
        assert not self.counts.get(broker_id), "it holds replicas"
        self._do("forget", lambda: self._forget(broker_id))

    async def stopped(self, bootstrap: str) -> Collection[int]:
        assert bootstrap
        return self._do("stopped of", lambda: {*self.counts}.difference(self._running()))

    async def level(self, bootstrap: str) -> FeatureLevel:
        assert bootstrap
        return self._do("level of", self._level)

    async def raise_level(self, bootstrap: str, level: int) -> None:
        assert bootstrap
        self._do("raise", lambda: self._raise(level))

    def _level(self) -> FeatureLevel:
        """A broker that is registered and does not run keeps the level from being raised."""
        level, stopped = self.feature_level, sorted({*self.counts}.difference(self._running()))
        if not stopped or level.possible == level.finalized:
            return level
        said = f"Broker {stopped[0]} is not running"
        return msgspec.structs.replace(level, possible=level.finalized, objection=said)

    def _raise(self, level: int) -> None:
        if level > self._level().possible:
            raise MovesUnavailable("Broker 2 only supports versions 1-1")
        assert level >= self.feature_level.finalized
        self.raises.append(level)
        self.feature_level = msgspec.structs.replace(self.feature_level, finalized=level)
        self._changed()

    def _do(self, what: str, act: Callable[[], Result]) -> Result:
        if not self.answers:
            raise MovesUnavailable("nobody answers")
        answer: Result = self._call(f"{what} replicas", act)
        return answer

    def _load(self) -> Load:
        partitions = [
            PartitionLoad("flights", number, (broker_id,), 64 << 20)
            for broker_id, count in self.counts.items()
            for number in range(count)
        ]
        return Load(tuple(map(BrokerLoad, self.counts)), tuple(partitions))

    def _forget(self, broker_id: int) -> None:
        self.counts.pop(broker_id, None)
        self.cordoned.discard(broker_id)
        self.forgotten.append(broker_id)

    def _step(self, goal: Goal) -> Progress:
        self.throttles.add(goal.throttle)
        self.cordoned |= goal.leaving
        stay = [each for each in self.counts if each not in self.cordoned]
        if len(stay) < self.fewest:
            return Progress(
                0, 0, 0, 0, unmet=("flights-0 stays on broker 2: no other may take it",)
            )
        moved = sum(self._from(each, stay) for each in sorted(goal.leaving))
        for _ in range(STEP):
            most = max(stay, key=self.counts.__getitem__, default=None)
            least = min(stay, key=self.counts.__getitem__, default=None)
            if (
                most is not None
                and least is not None
                and self.counts[most] - self.counts[least] > 1
            ):
                self.counts[most] -= 1
                self.counts[least] += 1
                moved += 1
        if moved:
            self._changed()
        return Progress(moved, moved << 20, 0, 0)

    def _from(self, broker_id: int, stay: list[int]) -> int:
        count = min(STEP, self.counts.get(broker_id, 0))
        for _ in range(count):
            self.counts[broker_id] -= 1
            self.counts[min(stay, key=self.counts.__getitem__)] += 1
        return count
