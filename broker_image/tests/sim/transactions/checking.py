"""What must hold of transactions after each event: I29 to I40 and L4 of docs/internals/invariants.md.

An unclean election may cost decisions and markers. After one, only that is judged which a log shows by itself.
"""

import itertools
from collections import Counter

from logfleet.transactions.state import TV2, TopicPartition, Transaction
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim import naming
from broker_image.tests.sim.invariants import Checker
from broker_image.tests.sim.kernel import Kernel, SimulationError
from broker_image.tests.sim.replica_log import Batch, ReplicaLog
from broker_image.tests.sim.transactions.attempts import Attempt
from broker_image.tests.sim.transactions.decisions import Decisions
from broker_image.tests.sim.transactions.requests import End
from broker_image.tests.sim.transactions.stable import (
    differs_from_replay,
    kept_by_reader,
    stable_end,
    visible,
)

FIRST_PRODUCER_ID = 10_000
ID_PREFIX = "x"
"""Of transactional ids, and so of the values that they write."""


class TransactionChecker:
    """coordinator: the partition of the log of transactions, -1 if there is none.

    disturbed: ids of an old client (TV1) whose transaction was ended by a request or a marker of an earlier one,
    which no broker can see (KIP-890).
    """

    def __init__(self, kernel: Kernel, checker: Checker, coordinator: int) -> None:
        self.coordinator = coordinator
        self.disturbed: set[str] = set()
        self._kernel, self._checker = kernel, checker
        self._decisions = Decisions(self._demand, self._is_marked)
        self._producer_ids = itertools.count(FIRST_PRODUCER_ID)
        self._attempts: dict[str, list[Attempt]] = {}
        self._askers: dict[tuple[int, int], str] = {}
        self._seen: Counter[int] = Counter()
        self._marked: dict[tuple[int, int, int, bool], int] = {}
        self._opened: dict[tuple[int, int], list[Batch]] = {}

    def take_producer_id(self) -> int:
        return next(self._producer_ids)

    @property
    def has_lost(self) -> bool:
        """Whether committed records may be gone."""
        return any(each.has_elected_uncleanly for each in self._checker.histories.values())

    def may_pass_for_a_repeat(self, value: str) -> bool:
        """Whether a record of a transaction may be acknowledged with the offset of an earlier one.

        A coordinator whose log lost records may give an epoch again, and so sequence numbers.
        """
        histories = self._checker.histories
        is_lost = (
            self.coordinator in histories and histories[self.coordinator].has_elected_uncleanly
        )
        return is_lost and value.startswith(ID_PREFIX)

    def _demand(self, holds: object, text: str, *arguments: object) -> None:
        if not holds and not self.has_lost:
            raise SimulationError(text % arguments)

    def id_of(self, producer_id: int) -> str:
        return self._decisions.ids.get(producer_id, "")

    # what producers do

    def begins(self, transactional_id: str, pair: tuple[int, int], version: int) -> Attempt:
        known = self._attempts.setdefault(transactional_id, [])
        attempt = Attempt(transactional_id, len(known), pair, version)
        known.append(attempt)
        return attempt

    def given(self, transactional_id: str, pair: tuple[int, int], asker: str) -> None:
        """A producer got this producer id and epoch."""
        before = self._askers.setdefault(pair, asker)
        self._demand(before == asker, "I35: %s is given to %s and to %s", pair, before, asker)
        self._demand(0 <= pair[1] < 32_767, "I35: %s gets %s", transactional_id, pair)

    def refused(self, attempt: Attempt, error: ErrorCode) -> None:
        """Its producer got a final error: EndTxn had no effect."""
        attempt.is_refused = True
        self._never(attempt, f"EndTxn was refused: {error.name}")

    def ended(self, attempt: Attempt) -> None:
        """EndTxn was answered without error."""
        attempt.is_ended = True
        if attempt.transactional_id in self.disturbed or not attempt.written:
            return
        pair = attempt.pair[0], attempt.pair[1] + (attempt.version == 2)
        self._demand(
            attempt.is_commit in self._decisions.outcomes.get(pair, ()),
            "I36: %s %s is answered as %s, decided is %s",
            attempt.transactional_id, pair, attempt.is_commit, self._decisions.outcomes.get(pair),
        )  # fmt: skip

    def end_arrives(self, request: End) -> None:
        """An EndTxn is at its coordinator. That of an old client ends whatever its producer does now."""
        name = request.request.transactional_id
        if request.version < 5 and request.number != len(self._attempts[name]) - 1:
            self._kernel.sometimes("an EndTxn of an old client came in its next transaction")
            self.disturbed.add(name)

    # what leaders append

    def marked(self, index: int, log: ReplicaLog, batch: Batch, version: int) -> None:
        """A leader is about to append a marker. version: of its transaction."""
        part = batch.part
        assert part is not None
        assert part.marker is not None
        decided = self._decisions.outcomes.get((batch.producer, part.epoch), set())
        self._demand(
            part.marker.is_commit in decided,
            "I29: partition %s: %s is appended, decided is %s", index, batch.value, decided,
        )  # fmt: skip
        entry = log.producers.get(batch.producer)
        if entry is None or entry.transaction_first_offset < 0:
            if self._has_marker(index, batch):
                self._kernel.sometimes("a marker was repeated")
            return
        current = self._decisions.current.get(part.transactional_id)
        is_due = (
            current is not None
            and current.is_decided
            and (current.producer_id, current.epoch) == (batch.producer, part.epoch)
            and current.is_commit == part.marker.is_commit
        )
        if not is_due and entry.epoch == part.epoch and version < TV2:
            self._kernel.sometimes("a late marker of an old client ended its next transaction")
            self.disturbed.add(part.transactional_id)
            return
        self._demand(
            is_due or not self._is_newest(index, batch.epoch),
            "I40: partition %s: %s ends a transaction of epoch %s, the id is %s",
            index, batch.value, entry.epoch, current,
        )  # fmt: skip

    def _has_marker(self, index: int, batch: Batch) -> bool:
        assert batch.part is not None
        assert batch.part.marker is not None
        return (
            index,
            batch.producer,
            batch.part.epoch,
            batch.part.marker.is_commit,
        ) in self._marked

    def written(self, index: int, log: ReplicaLog, batch: Batch) -> None:
        """A leader has appended a record of a transaction (I30)."""
        part = batch.part
        assert part is not None
        if part.transactional_id in self.disturbed or not self._is_newest(index, batch.epoch):
            return
        stored = self._decisions.current.get(part.transactional_id)
        belongs = (
            stored is not None
            and stored.producer_id == batch.producer
            and TopicPartition(naming.TOPIC, naming.index_of(index)) in stored.partitions
            and (
                stored.epoch == part.epoch or (stored.is_decided and stored.epoch == part.epoch + 1)
            )
        )
        self._demand(
            belongs, "I30: partition %s: %s of %s/%s is appended, the id is %s",
            index, batch.value, batch.producer, part.epoch, stored,
        )  # fmt: skip
        assert stored is not None or self.has_lost
        if stored is not None and stored.epoch > part.epoch:
            ended = [
                each
                for each in log.read(log.start_offset, log.end_offset)
                if each.producer == batch.producer
                and each.part is not None
                and each.part.marker is not None
                and each.part.epoch > part.epoch
            ]
            self._demand(
                not ended, "I30: partition %s: %s is appended behind %s", index, batch.value, ended
            )

    def _is_newest(self, index: int, leader_epoch: int) -> bool:
        """Whether the leader of this epoch was not replaced."""
        state = self._checker.history(index).state
        return state is None or state.leader_epoch == leader_epoch

    # what is committed

    def advanced(self, index: int) -> None:
        """A leader's high watermark of this partition has moved."""
        history = self._checker.history(index)
        while self._seen[index] < len(history.committed):
            batch = history.committed[self._seen[index]]
            self._seen[index] += 1
            if batch.records:
                for record in batch.records:
                    self._decisions.committed(record)
            elif batch.part is not None:
                self._committed(index, batch)

    def _committed(self, index: int, batch: Batch) -> None:
        part = batch.part
        assert part is not None
        if part.marker is None:
            self._opened.setdefault((index, batch.producer), []).append(batch)
            return
        key = (index, batch.producer, part.epoch, part.marker.is_commit)
        self._marked[key] = batch.offset
        for each in self._opened.pop((index, batch.producer), ()):
            self._outcome(index, each, part.epoch, is_commit=part.marker.is_commit)

    def _outcome(self, index: int, batch: Batch, marker_epoch: int, *, is_commit: bool) -> None:
        """A record is visible from now on, or never.

        One that comes after EndTxn and before the marker has its transaction's outcome, as no leader
        can see that it is late (KIP-890); it joins no other transaction.
        """
        assert batch.part is not None
        if batch.part.transactional_id in self.disturbed:
            return
        attempt = self._attempt_of(batch)
        is_late = batch.value in attempt.late
        is_own = not is_late or marker_epoch == attempt.pair[1] + 1
        is_asked = attempt.is_commit is True and not attempt.is_refused and is_own
        self._demand(
            not is_commit or is_asked,
            "I36: partition %s: %s is committed, and nobody asked for that", index, batch.value,
        )  # fmt: skip
        self._demand(
            is_commit or is_late or not attempt.is_committed,
            "I40: partition %s: %s is aborted, and its transaction is committed", index, batch.value,
        )  # fmt: skip

    def _attempt_of(self, batch: Batch) -> Attempt:
        name, number, _ = batch.value.split("-")
        return self._attempts[name][int(number)]

    def _is_marked(self, partition: TopicPartition, decided: Transaction) -> bool:
        index = partition.partition
        key = (index, decided.producer_id, decided.epoch, decided.is_commit)
        return key in self._marked or self._checker.history(index).is_deleted

    def _never(self, attempt: Attempt, why: str) -> None:
        if attempt.transactional_id in self.disturbed:
            return
        shown = [
            value
            for index, values in attempt.written.items()
            for value in values
            if value in self._shown(index)
        ]
        self._demand(not shown, "I36: %s is visible: %s", shown, why)

    def _shown(self, index: int) -> list[str]:
        committed = self._checker.history(index).committed
        return visible(committed, 0, len(committed))

    # what replicas hold

    def holds(self, index: int, broker_id: int, log: ReplicaLog, high_watermark: int) -> int:
        """The last stable offset of a replica that has changed (I31)."""
        found, needed = log.last_stable_offset(high_watermark), stable_end(log, high_watermark)
        if found != needed:
            raise SimulationError(f"I31: partition {index}: broker {broker_id} has its last stable offset at {found}, and not at {needed}")  # fmt: skip
        if found < high_watermark:
            self._kernel.sometimes("a transaction held readers back")
        return found

    def goes_on(self, index: int, broker_id: int, before: int, stable: int) -> None:
        """A leader has this last stable offset after another one (I31)."""
        if stable < before:
            raise SimulationError(f"I31: partition {index}: the last stable offset of its leader {broker_id} goes back from {before} to {stable}")  # fmt: skip

    def equals_replay(self, index: int, broker_id: int, log: ReplicaLog) -> None:
        difference = differs_from_replay(log)
        if difference is not None:
            raise SimulationError(f"I33: partition {index} of broker {broker_id}: {difference}")

    def read(self, index: int, log: ReplicaLog, start: int, end: int) -> None:
        """Somebody reads committed transactions from there up to a stable offset (I32)."""
        batches = log.read(start, end)
        kept = kept_by_reader(batches, log.aborted.between(start, end))
        needed = visible(log.read(log.base, log.end_offset), start, end)
        if kept != needed:
            raise SimulationError(f"I32: partition {index}: a reader from {start} to {end} keeps {kept}, and not {needed}")  # fmt: skip

    # the end

    def rests(self) -> None:
        """All has come to rest: each transaction is visible whole, in its order, or not at all.

        Unless a partition can have no leader any more.
        """
        states = [each.state for each in self._checker.histories.values()]
        if any(state is None or not state.has_leader for state in states):
            return
        shown = {index: self._shown(index) for index in range(self.coordinator)}
        for name, attempts in self._attempts.items():
            if name in self.disturbed:
                continue
            for attempt in attempts:
                for index, values in attempt.written.items():
                    deleted = self._checker.history(index).deleted
                    if deleted:
                        continue
                    found = [
                        value
                        for value in shown[index]
                        if value.startswith(f"{name}-{attempt.number}-")
                        and value not in attempt.late
                    ]
                    needed = values if attempt.is_committed else []
                    self._demand(
                        found == needed,
                        "I36: partition %s: %s are visible of %s", index, found, attempt,
                    )  # fmt: skip
