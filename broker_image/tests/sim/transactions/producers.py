"""Transactional producers of a simulated fleet: one transactional id each, whose processes come and go.

They do what Java's client does with each error: try again, abort, or begin again with InitProducerId.
"""

from collections.abc import Callable

from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.transactions.adding import Addition
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from broker_image.tests.sim import naming
from broker_image.tests.sim.clients import Client
from broker_image.tests.sim.kernel import Host, Process, SimulationError
from broker_image.tests.sim.messages import Led, Metadata, Produce
from broker_image.tests.sim.net import Disconnected
from broker_image.tests.sim.node import Fleet
from broker_image.tests.sim.replica_log import Part
from broker_image.tests.sim.transactions.attempts import Attempt
from broker_image.tests.sim.transactions.checking import ID_PREFIX
from broker_image.tests.sim.transactions.load import (
    COMES_AGAIN,
    DIES,
    WRITES_LATE,
    TransactionLoad,
)
from broker_image.tests.sim.transactions.requests import Add, End, Init, Refused, TransactionRequest

RETRY_MS = 60
PRODUCE_MS = 7_000
"""delivery.timeout.ms of a record; after that the transaction is aborted."""
GIVE_UP_MS = 400_000
"""Nothing that a simulation breaks lasts longer."""
LATE_MS = 12_000
REFUSALS_MAX = 4
AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class TransactionalProducer:
    """pair: producer id and epoch, None while it has none. version: of the protocol, 2 or 1."""

    def __init__(self, fleet: Fleet, host: Host, number: int) -> None:
        style = fleet.settings.style
        assert style is not None
        self.id = f"{ID_PREFIX}{number}"
        self.is_idle = True
        self.pair: tuple[int, int] | None = None
        self._version = style.protocols[number]
        self._timeout_ms = style.timeout_ms
        self._fleet, self._kernel, self._host = fleet, fleet.kernel, host
        self._checker = fleet.transactions
        self._partitions = [Client(fleet, each) for each in range(fleet.settings.data_partitions)]
        self._coordinator = NO_LEADER
        self._sequences: dict[int, int] = {}
        self._processes = self._refusals = 0
        self._is_unresolved = False
        self._waiting: list[TransactionLoad] = []

    def begin(self, load: TransactionLoad) -> None:
        """Once those before are through."""
        self._waiting.append(load)
        if self.is_idle:
            self.is_idle = False
            self._kernel.spawn(self._host, "transactions", self._all())

    def _all(self) -> Process:
        while self._waiting:
            yield from self._transaction(self._waiting.pop(0))
        self.is_idle = True

    def _transaction(self, load: TransactionLoad) -> Process:
        if self.pair is None:
            self._processes += 1
            yield from self._init()
        assert self.pair is not None
        attempt = self._checker.begins(self.id, self.pair, self._version)
        self._is_unresolved = False
        is_whole = yield from self._write(attempt, load)
        if load.fate == DIES:
            self._kernel.sometimes("a transaction was abandoned")
            self.pair = None
            return
        yield from self._end(attempt, load, is_commit=is_whole and load.is_commit)
        if self._version == 1 and self._is_unresolved and self.pair is not None:
            yield from self._init()  # a record may be on its way: the next epoch keeps it out (KIP-360)

    # steps

    def _init(self) -> Process:
        began_ms = self._kernel.now
        while True:
            producer_id, epoch = self.pair or (-1, -1)
            request = InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            asker = f"{self.id}-{self._processes}"
            answer = yield from self._ask(Init(request, asker))
            if isinstance(answer, InitProducerIdResponse):
                if answer.error_code == ErrorCode.NONE:
                    self.pair = answer.producer_id, answer.producer_epoch
                    self._sequences.clear()
                    self._checker.given(self.id, self.pair, asker)
                    return
                if answer.error_code not in AGAIN:
                    self._kernel.sometimes("a producer was fenced at its start")
                    self.pair = None
                    self._processes += 1
            yield from self._pause(began_ms)

    def _write(self, attempt: Attempt, load: TransactionLoad) -> Process:
        """Whether all is acknowledged."""
        if self._version == 1 and not (yield from self._add(load.partitions)):
            return False
        for _ in range(load.records):
            for index in load.partitions:
                if not (yield from self._produce(attempt, index)):
                    self._kernel.sometimes("a transaction failed before its end")
                    return False
        return True

    def _add(self, partitions: tuple[int, ...]) -> Process:
        began_ms = self._kernel.now
        assert self.pair is not None
        producer_id, epoch = self.pair
        added = frozenset(TopicPartition(naming.TOPIC, index) for index in partitions)
        addition = Addition(self.id, producer_id, ProducerEpoch(epoch), added)
        while True:
            answer = yield from self._ask(Add(addition))
            if answer is ErrorCode.NONE:
                return True
            if isinstance(answer, ErrorCode) and answer not in AGAIN:
                return False
            yield from self._pause(began_ms)

    def _produce(self, attempt: Attempt, index: int) -> Process:
        kernel, began_ms, refusals = self._kernel, self._kernel.now, 0
        request = self._record(attempt, index)
        attempt.sent(index, request.value)
        client = self._partitions[index]
        if kernel.tape.chance("txn.copy", 3):
            self._later("a record came again late", lambda: client.ask(self._host, request))
        while True:
            answer = yield from client.ask(self._host, request)
            error = None if answer is None else answer.error
            if error is ErrorCode.NONE:
                self._sequences[index] = request.sequence + 1
                return True
            refusals += error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            is_over = error is not None and error not in {
                *AGAIN,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            }
            if is_over or refusals > REFUSALS_MAX or kernel.now - began_ms > PRODUCE_MS:
                self._is_unresolved = True
                return False
            yield RETRY_MS + kernel.draw("txn.retry", 100)

    def _record(self, attempt: Attempt, index: int) -> Produce:
        producer_id, epoch = attempt.pair
        return Produce(
            index,
            f"{self.id}-{attempt.number}-{attempt.count}",
            True,
            producer_id,
            self._sequences.get(index, 0),
            Part(self.id, epoch),
            adds=self._version == 2,
        )

    def _end(self, attempt: Attempt, load: TransactionLoad, *, is_commit: bool) -> Process:
        kernel, began_ms = self._kernel, self._kernel.now
        request = self._ending(attempt, is_commit=is_commit)
        attempt.is_commit = is_commit
        while True:
            answer = yield from self._ask(request)
            if isinstance(answer, EndTxnResponse):
                error = ErrorCode(answer.error_code)
                if error is ErrorCode.NONE:
                    break
                if error not in AGAIN:
                    kernel.sometimes(f"EndTxn was refused: {error.name}")
                    self._checker.refused(attempt, error)
                    self.pair = None
                    return
            yield from self._pause(began_ms)
        self._checker.ended(attempt)
        if self._version == 2:
            self._go_on(attempt, load, answer)

    def _ending(self, attempt: Attempt, *, is_commit: bool) -> End:
        producer_id, epoch = attempt.pair
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )
        return End(request, 5 if self._version == 2 else 4, attempt.number)

    def _go_on(self, attempt: Attempt, load: TransactionLoad, answer: EndTxnResponse) -> None:
        """Its next transaction has an epoch of its own: nothing that comes late can harm it."""
        if load.fate == COMES_AGAIN:
            is_other = self._kernel.draw("txn.other", 4) == 3
            late = self._ending(attempt, is_commit=attempt.is_commit is not is_other)
            self._later("EndTxn came again late", lambda: self._ask(late))
        elif load.fate == WRITES_LATE:
            index = load.partitions[0]
            record = self._record(attempt, index)
            attempt.late.append(record.value)
            client = Client(self._fleet, index)
            self._later(
                "a record came after its transaction", lambda: client.ask(self._host, record)
            )
        self.pair = answer.producer_id, answer.producer_epoch
        if self.pair[0] != attempt.pair[0]:
            self._kernel.sometimes("a producer id had no epoch left")
        self._sequences.clear()
        self._checker.given(self.id, self.pair, f"{self.id}-{self._processes}")

    # asking

    def _later(self, label: str, made: Callable[[], Process]) -> None:
        self._kernel.sometimes(label)
        delay_ms = self._kernel.draw("txn.later", LATE_MS)
        self._kernel.at(
            delay_ms, self._host, "late", lambda: self._kernel.spawn(self._host, "late", made())
        )

    def _ask(self, request: TransactionRequest) -> Process:
        """The coordinator's answer, None if there is none."""
        net, kernel = self._fleet.net, self._kernel
        if self._coordinator == NO_LEADER:
            asked = 1 + kernel.draw("txn.bootstrap", len(self._fleet.settings.racks))
            led = yield net.call(
                self._host, f"b{asked}", Metadata(self._fleet.settings.coordinator)
            )
            if not isinstance(led, Led) or led.leader == NO_LEADER:
                return None
            self._coordinator = led.leader
        answer = yield net.call(self._host, f"b{self._coordinator}", request)
        if isinstance(answer, Disconnected | Refused):
            self._coordinator = NO_LEADER
            return None
        return answer

    def _pause(self, began_ms: int) -> Process:
        if self._kernel.now - began_ms > GIVE_UP_MS:
            raise SimulationError(f"L4: {self.id} gets no answer of its coordinator")
        yield RETRY_MS + self._kernel.draw("txn.retry", 100)
