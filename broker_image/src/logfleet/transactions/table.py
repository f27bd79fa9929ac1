"""All transactional ids of one partition: the state that its log defines."""

from dataclasses import dataclass, field

from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import State, Transaction


@dataclass(slots=True)
class TransactionTable:
    """The ids of one coordinator. Only `apply` changes it.

    ongoing, decided: the ids whose transaction is in progress, or has an outcome and may lack
    markers; both follow from `by_id`.
    """

    by_id: dict[str, Transaction] = field(default_factory=dict)
    ongoing: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)

    def apply(self, record: TransactionRecord) -> None:
        """Apply a record of the log. Its transaction is the whole state of its id."""
        transactional_id, transaction = record.transactional_id, record.transaction
        self.ongoing.discard(transactional_id)
        self.decided.discard(transactional_id)
        if transaction is None:
            self.by_id.pop(transactional_id, None)
            return
        self.by_id[transactional_id] = transaction
        if transaction.state is State.ONGOING:
            self.ongoing.add(transactional_id)
        elif transaction.is_decided:
            self.decided.add(transactional_id)

    def clear(self) -> None:
        """Forget all ids."""
        self.by_id.clear()
        self.ongoing.clear()
        self.decided.clear()
