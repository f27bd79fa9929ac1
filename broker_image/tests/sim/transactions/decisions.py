"""What the committed log of transactions says, as the checker follows it: I35, I38 and I40 of docs/internals/invariants.md."""

from collections.abc import Callable

from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import (
    AT_REST,
    EPOCH_MAX,
    PREDECESSORS,
    TV2,
    State,
    TopicPartition,
    Transaction,
)

Demand = Callable[..., None]
Missing = Callable[[TopicPartition, Transaction], bool]


class Decisions:
    """current: the committed state of each id. outcomes: of decided transactions, by the pair of their markers."""

    def __init__(self, demand: Demand, is_marked: Missing) -> None:
        self.current: dict[str, Transaction] = {}
        self.outcomes: dict[tuple[int, int], set[bool]] = {}
        self.ids: dict[int, str] = {}
        self._demand = demand
        self._is_marked = is_marked

    def committed(self, record: TransactionRecord) -> None:
        """The next record of the log is committed."""
        name, after = record.transactional_id, record.transaction
        before = self.current.get(name)
        if after is None:
            self._demand(
                before is not None and before.state in AT_REST,
                "I38: %s is forgotten: %s",
                name,
                before,
            )
            self.current.pop(name, None)
            return
        self.current[name] = after
        self.ids[after.producer_id] = name
        if before is not None:
            self._demand(
                before.state in PREDECESSORS[after.state],
                "I40: %s: %s follows %s",
                name,
                after,
                before,
            )
            self._epochs(name, before, after)
        if after.is_decided:
            self._decided(name, after)
        elif after.state not in {State.EMPTY, State.ONGOING}:
            self._demand(before is not None, "I40: %s: %s was not decided", name, after)
            if before is not None:
                self._complete(name, before, after)

    def _epochs(self, name: str, before: Transaction, after: Transaction) -> None:
        is_same = before.producer_id == after.producer_id
        self._demand(
            not is_same or after.epoch >= before.epoch,
            "I35: %s: %s follows %s",
            name,
            after,
            before,
        )
        self._demand(
            after.is_decided or after.epoch < EPOCH_MAX,
            "I35: %s has the last epoch: %s",
            name,
            after,
        )
        if after.is_decided and after.client_version >= TV2:
            self._demand(
                after.epoch == before.epoch + 1, "I35: %s: %s follows %s", name, after, before
            )

    def _decided(self, name: str, after: Transaction) -> None:
        outcomes = self.outcomes.setdefault((after.producer_id, after.epoch), set())
        self._demand(
            not outcomes or after.client_version < TV2,
            "I40: %s is decided twice: %s", name, after,
        )  # fmt: skip
        outcomes.add(after.is_commit)

    def _complete(self, name: str, before: Transaction, after: Transaction) -> None:
        self._demand(
            before.is_commit == after.is_commit, "I40: %s: %s follows %s", name, after, before
        )
        for partition in sorted(before.partitions):
            self._demand(
                self._is_marked(partition, before),
                "I40: %s is complete, and %s has no marker of %s", name, partition, before,
            )  # fmt: skip
