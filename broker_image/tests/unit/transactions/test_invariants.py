"""I29, I34 to I36, I38 and I40 under anything producers, time, slow followers, refusals and failovers do.

One transactional id, three producers that use it at once, old and new clients mixed. The first epoch is near the last
one, so that producer ids are used up. A failover loses any part of what was not committed.
"""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from logfleet.transactions.adding import Addition
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.markers import MarkerKey
from logfleet.transactions.records import TransactionRecord, encode
from logfleet.transactions.state import (
    AT_REST,
    DECIDED,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    PREDECESSORS,
    TV2,
    State,
    TopicPartition,
    Transaction,
    new_transaction,
)
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from broker_image.tests.scenario.transaction_host import WALL_MS, TransactionHost

ID = "tx"
CLIENTS = st.integers(0, 2)
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
SOME = st.frozensets(st.sampled_from(PARTITIONS), min_size=1)
SELDOM = st.sampled_from([False, False, False, True])
TIMEOUT_MS = 30_000
DEFINITE = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
UNKNOWN = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}

Pair = tuple[int, int]


class Transactions(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.host = TransactionHost(TransactionConfig(id_expiration_ms=10**12))
        self.pairs: list[Pair] = [(-1, -1)] * 3
        self.old_pairs: list[Pair] = [(-1, -1)] * 3
        self.sent: dict[object, dict[str, Any]] = {}
        self.requests = self.seen = 0
        self.owner_of: dict[Pair, int] = {}
        self.commits: dict[
            Pair, list[bool]
        ] = {}  # pair -> for each commit by TV2, whether it may have been
        self.answered_committed: set[Pair] = set()
        self.due: list[MarkerKey] = []
        self.marked: dict[MarkerKey, set[TopicPartition]] = {}

    @initialize(epoch=st.sampled_from([0, 32_762, 32_764]))
    def begin(self, epoch):
        stored = msgspec.structs.replace(
            new_transaction(self.host.take_producer_id() or 0, TIMEOUT_MS, WALL_MS),
            epoch=ProducerEpoch(epoch),
        )
        record = TransactionRecord(ID, stored)
        self.host.log.append(encode(record))
        self.host.committed_end = 1
        self.host.coordinator.apply(record)

    # -- producers

    @rule(client=CLIENTS, is_continued=st.booleans())
    def init(self, client, is_continued):
        producer_id, epoch = self.pairs[client] if is_continued else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.ask(self.host.coordinator.init, request, 5, client=client)

    @rule(client=CLIENTS, partitions=SOME, version=st.sampled_from([0, TV2]))
    def add(self, client, partitions, version):
        producer_id, epoch = self.pairs[client]
        asked = Addition(ID, producer_id, ProducerEpoch(epoch), partitions, version)
        self.ask(self.host.coordinator.add, asked, client=client)

    @rule(client=CLIENTS, partitions=SOME)
    def verify(self, client, partitions):
        producer_id, epoch = self.pairs[client]
        asked = Addition(ID, producer_id, ProducerEpoch(epoch), partitions)
        self.ask(self.host.coordinator.verify, asked, client=client)

    @rule(
        client=CLIENTS,
        commit=st.booleans(),
        version=st.sampled_from([4, 5, 5]),
        is_late=st.booleans(),
    )
    def end(self, client, commit, version, is_late):
        pair = (self.old_pairs if is_late else self.pairs)[client]
        request = EndTxnRequest(
            transactional_id=ID, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )
        if commit and version >= 5:
            self.commits.setdefault(pair, []).append(True)
        self.ask(
            self.host.coordinator.end,
            request,
            version,
            client=client,
            pair=pair,
            is_commit=commit and version >= 5,
            number=len(self.commits.get(pair, ())) - 1,
        )

    @rule(
        client=CLIENTS,
        partitions=SOME,
        version=st.sampled_from([0, TV2, TV2]),
        commit=st.booleans(),
    )
    def transact(self, client, partitions, version, commit):
        """What clients do most of the time."""
        for _ in range(2):
            if self.pairs[client][0] == -1:
                self.init(client, is_continued=False)
                self.mark_all()
        self.add(client, partitions, version)
        self.end(client, commit, 5 if version == TV2 else 4, is_late=False)

    def ask(self, method, *arguments, **facts):
        self.requests += 1
        waiter = ("request", self.requests)
        self.sent[waiter] = facts
        self.host.call(method, *arguments, waiter)
        facts["end"] = len(self.host.log)
        self.take_answers()

    def take_answers(self):
        for waiter, response in self.host.replies[self.seen :]:
            facts = self.sent[waiter]
            error = (
                response if isinstance(response, ErrorCode) else getattr(response, "error_code", 0)
            )
            if error not in UNKNOWN and not isinstance(response, dict) and "end" in facts:
                assert self.host.committed_end >= facts["end"], "an answer before its commit"
            match response:
                case InitProducerIdResponse(error_code=0):
                    self.given(facts["client"], (response.producer_id, response.producer_epoch))
                case EndTxnResponse():
                    self.ended(facts, response)
        self.seen = len(self.host.replies)
        self.take_markers()

    def ended(self, facts, response):
        if facts["is_commit"]:
            if response.error_code == ErrorCode.NONE:
                self.answered_committed.add(facts["pair"])
            elif response.error_code in DEFINITE:
                self.commits[facts["pair"]][facts["number"]] = False
        if response.error_code == ErrorCode.NONE and response.producer_id != -1:
            self.given(facts["client"], (response.producer_id, response.producer_epoch))

    def given(self, client, pair):
        assert pair[1] < EPOCH_MAX, "I35: an epoch that only markers have"
        assert self.owner_of.setdefault(pair, client) == client, "I35: one pair, two producers"
        if pair != self.pairs[client]:
            self.old_pairs[client], self.pairs[client] = self.pairs[client], pair

    # -- markers

    def take_markers(self):
        for each in self.host.markers:
            committed = decided_of(self.host.records()[: self.host.committed_end])
            assert (each.key.producer_id, each.key.epoch, each.is_commit) in committed, "I29"
            if each.key not in self.due:
                self.due.append(each.key)
        self.host.markers.clear()

    @rule(partitions=SOME, data=st.data())
    def mark(self, partitions, data):
        if self.due:
            key = data.draw(st.sampled_from(self.due))  # also of a transaction that is long over
            self.write_markers(key, partitions)

    @rule()
    def mark_all(self):
        for key in list(self.due):
            self.write_markers(key, PARTITIONS)

    def write_markers(self, key, partitions):
        self.marked.setdefault(key, set()).update(partitions)
        self.host.call(self.host.coordinator.marked, key, partitions)
        self.take_answers()

    # -- the coordinator's surroundings

    @rule(holds=SELDOM)
    def hold(self, holds):
        self.host.holds_commits = holds
        if not holds:
            self.settle()

    @rule()
    def settle(self):
        self.host.holds_commits = False
        self.host.commit()
        self.take_answers()

    @rule()
    def run_out_of_time(self):
        self.host.commit(ErrorCode.REQUEST_TIMED_OUT)
        self.take_answers()

    @rule(is_refused=SELDOM)
    def refuse(self, is_refused):
        self.host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS if is_refused else ErrorCode.NONE

    @rule(has_none=SELDOM)
    def producer_ids(self, has_none):
        self.host.has_producer_ids = not has_none

    @rule(for_ms=st.sampled_from([50, 10_000, TIMEOUT_MS + 1]))
    def wait(self, for_ms):
        self.host.wait(for_ms)
        self.take_answers()

    @rule(data=st.data())
    def fail_over(self, data):
        self.host.unload()
        self.take_answers()
        end = data.draw(st.integers(self.host.committed_end, len(self.host.log)))
        self.host.load(end=end)
        for facts in self.sent.values():
            facts.pop("end", None)
        self.take_markers()

    # -- what holds

    @invariant()
    def memory_is_what_the_log_says(self):
        table = self.host.coordinator.table
        stored = {
            key: msgspec.structs.replace(each, last_epoch=NO_PRODUCER_EPOCH)
            for key, each in table.by_id.items()
        }
        assert stored == self.host.replayed(), "I34"
        assert table.ongoing == {key for key, each in stored.items() if each.state is State.ONGOING}
        assert table.decided == {key for key, each in stored.items() if each.state in DECIDED}

    @invariant()
    def each_transaction_has_one_outcome(self):
        before: Transaction | None = None
        for record in self.host.records():
            assert record.transaction is not None
            if before is not None:
                assert before.state in PREDECESSORS[record.transaction.state], "I40"
                if before.state in DECIDED and before.client_version >= TV2:
                    key = MarkerKey(record.transactional_id, before.producer_id, before.epoch)
                    assert before.partitions <= self.marked.get(key, set()), "I40: no marker"
                is_same = before.producer_id == record.transaction.producer_id
                assert record.transaction.epoch >= before.epoch if is_same else True, "I35"
            before = record.transaction

    @invariant()
    def answers_to_commits_are_true(self):
        decided = decided_of(self.host.records())
        for producer_id, epoch in self.answered_committed:
            assert (producer_id, epoch + 1, True) in decided, "I36"
        for (producer_id, epoch), possible in self.commits.items():
            if not any(possible):
                assert (producer_id, epoch + 1, True) not in by_tv2(self.host.records()), "I36"

    @invariant()
    def nothing_waits_once_nothing_is_decided(self):
        coordinator = self.host.coordinator
        if not coordinator.table.decided:
            assert coordinator.is_idle, "I38"

    def teardown(self):
        """L4: after everything is well again, no transaction is left."""
        self.host.append_error = ErrorCode.NONE
        self.host.has_producer_ids = True
        self.settle()
        for _ in range(4):
            self.host.wait(TIMEOUT_MS + 10_000)
            self.take_answers()
            self.mark_all()
        stored = self.host.replayed().get(ID)
        assert stored is None or stored.state in AT_REST, "L4"


def decided_of(records: list[TransactionRecord]) -> set[tuple[int, int, bool]]:
    """Producer id, epoch of the markers, and outcome of each decision."""
    return {
        (each.producer_id, each.epoch, each.is_commit)
        for record in records
        if (each := record.transaction) is not None and each.is_decided
    }


def by_tv2(records: list[TransactionRecord]) -> set[tuple[int, int, bool]]:
    return decided_of(
        [
            record
            for record in records
            if record.transaction is not None and record.transaction.client_version >= TV2
        ]
    )


Transactions.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
