"""Interleavings of transactions. C coordinates them, X follows it, and L leads a partition that they write to."""

from typing import Any

from logfleet.transactions.adding import Addition
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import EndTxnRequest, InitProducerIdRequest, WriteTxnMarkersRequest

from broker_image.tests.sim import naming
from broker_image.tests.sim.broker import SimBroker
from broker_image.tests.sim.messages import Produce, Produced
from broker_image.tests.sim.replica_log import Part
from broker_image.tests.sim.scenario import Scenario
from broker_image.tests.sim.transactions.attempts import Attempt
from broker_image.tests.sim.transactions.load import Style
from broker_image.tests.sim.transactions.requests import (
    Add,
    End,
    Init,
    TransactionRequest,
    WritableMarker,
    Write,
)
from broker_image.tests.sim.transactions.room import Transactions

ID = "x0"
Pair = tuple[int, int]
_Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


class Transacting(Scenario):
    """One transactional id. protocol: 1 or 2, of its client."""

    def __init__(self, protocol: int, *, factor: int = 2, min_isr: int = 1) -> None:
        super().__init__(factor=factor, min_isr=min_isr, style=Style((protocol,)))
        self.protocol = protocol
        self._attempts: dict[Pair, Attempt] = {}
        first, second = self.states[-1].replicas[:2]
        self.coordinator, self.follower = self.brokers[first], self.brokers[second]
        self.index, self.leader = next(
            (index, self.brokers[each.leader])
            for index, each in enumerate(self.states[:-1])
            if each.leader not in {first, second}
        )

    def initialised(self) -> Pair:
        request = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = self.asked(Init(request, ID))
        return self._begins((answer.producer_id, answer.producer_epoch))

    def _begins(self, pair: Pair) -> Pair:
        self._attempts[pair] = self.fleet.transactions.begins(ID, pair, self.protocol)
        return pair

    def asked(self, request: TransactionRequest) -> Any:
        """The answer of C."""
        answer = self.room(self.coordinator).ask(request)
        self.until(lambda: answer.is_done, "C answers")
        return answer.value

    def add(self, pair: Pair) -> None:
        partitions = frozenset({TopicPartition(naming.TOPIC, self.index)})
        assert self.asked(Add(Addition(ID, pair[0], ProducerEpoch(pair[1]), partitions))) == 0

    def write(self, pair: Pair, sequence: int = 0) -> list[Produced]:
        """A record comes to L. What it answers will be in the list."""
        answers, attempt, part = list[Produced](), self._attempts[pair], Part(ID, pair[1])
        value = f"{ID}-{attempt.number}-{attempt.count}"
        if attempt.is_ended:
            attempt.late.append(value)
        else:
            attempt.sent(self.index, value)
        record = Produce(self.index, value, True, pair[0], sequence, part, self.protocol == 2)
        self.room(self.leader).produce(record, answers.append)
        return answers

    def written(self, pair: Pair, sequence: int = 0) -> None:
        answers = self.write(pair, sequence)
        self.until(lambda: answers, "the record is answered")
        assert answers[0].error is ErrorCode.NONE

    def ending(self, pair: Pair, *, is_commit: bool) -> End:
        self._attempts[pair].is_commit = is_commit
        request = EndTxnRequest(
            transactional_id=ID, producer_id=pair[0], producer_epoch=pair[1], committed=is_commit
        )
        return End(request, 5 if self.protocol == 2 else 4, self._attempts[pair].number)

    def ended(self, pair: Pair, *, is_commit: bool) -> Pair:
        """C has answered. Returns the pair of the next transaction."""
        answer = self.asked(self.ending(pair, is_commit=is_commit))
        assert answer.error_code == 0
        self.fleet.transactions.ended(self._attempts[pair])
        following = answer.producer_id, answer.producer_epoch
        return self._begins(following) if self.protocol == 2 else pair

    def mark(self, pair: Pair, *, is_commit: bool) -> list[Any]:
        """A marker comes to L, as C's successor or a late copy of a request brings it."""
        answers = list[Any]()
        marker = WritableMarker(
            producer_id=pair[0],
            producer_epoch=pair[1],
            transaction_result=is_commit,
            topics=[_Topic(name=naming.TOPIC, partition_indexes=[self.index])],
            coordinator_epoch=self.states[-1].leader_epoch,
            transaction_version=self.protocol,
        )
        self.room(self.leader).appends.write(Write((marker,)), answers.append)
        return answers

    @property
    def open_at_leader(self) -> list[int]:
        """Producers with an open transaction there."""
        states = self.leader.disk.logs[self.index].producers
        return [producer_id for producer_id, _ in states.open_transactions()]

    def room(self, broker: SimBroker) -> Transactions:
        assert broker.transactions is not None
        return broker.transactions


def a_late_record_finds_its_transaction_over() -> None:
    """KIP-890: the coordinator confirms the partition; the marker gets to the leader before that response."""
    s = Transacting(1)
    pair = s.initialised()
    s.add(pair)
    s.cut(s.coordinator, s.leader)
    answers = s.write(pair)
    s.after(20)
    s.ended(pair, is_commit=False)
    s.mark(pair, is_commit=False)
    s.mend(s.coordinator, s.leader)
    s.until(lambda: answers, "the record is answered")
    s.rests()
    assert answers == [Produced(ErrorCode.INVALID_TXN_STATE)]


def a_marker_drops_the_guards_of_its_transaction() -> None:
    """The same, for a leader that would keep them."""
    a_late_record_finds_its_transaction_over()


def a_marker_that_comes_late_ends_no_later_transaction() -> None:
    """KIP-890: the marker of a transaction has the epoch of the next one, and comes again within that."""
    s = Transacting(2)
    first = s.initialised()
    s.written(first)
    following = s.ended(first, is_commit=True)
    s.until(lambda: not s.open_at_leader, "L has the marker")
    s.written(following)
    s.mark(following, is_commit=True)
    s.after(100)
    assert s.open_at_leader == [following[0]]
    s.ended(following, is_commit=False)
    s.rests()


def a_record_of_an_old_epoch_is_refused_by_the_log_alone() -> None:
    """KIP-890: the marker has brought L the next epoch, so it does not have to ask C, which is cut off."""
    s = Transacting(2)
    first = s.initialised()
    s.written(first)
    s.ended(first, is_commit=True)
    s.until(lambda: not s.open_at_leader, "L has the marker")
    s.cut(s.leader, s.coordinator)
    assert s.write(first, 1) == [Produced(ErrorCode.INVALID_PRODUCER_EPOCH)]
    s.rests()


def a_new_coordinator_acts_on_nothing_that_may_be_lost() -> None:
    """X has read the decision of C, which dies. It is not committed until L has it, too."""
    s = Transacting(2, factor=3, min_isr=2)
    pair = s.initialised()
    s.written(pair)
    log = s.follower.disk.logs[s.fleet.settings.coordinator]
    before = log.end_offset
    s.cut(s.follower, s.coordinator)
    s.cut(s.leader, s.coordinator)
    s.room(s.coordinator).ask(s.ending(pair, is_commit=True))
    s.until(lambda: log.end_offset > before, "X has the decision")
    s.cut(s.leader, s.follower)
    s.kill(s.coordinator)
    s.end_lease(s.coordinator)
    s.until(lambda: s.states[-1].leader == s.follower.id, "X is elected")
    s.after(1_000)
    assert s.open_at_leader == [pair[0]]
    s.rests()
    assert not s.open_at_leader
