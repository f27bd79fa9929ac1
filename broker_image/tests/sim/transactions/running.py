"""The transactions of one run: their producers, and somebody who looks into logs meanwhile."""

from collections.abc import Iterator, Mapping, Sequence

from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import new_transaction
from logfleet.types import ProducerEpoch
from msgspec.structs import replace

from broker_image.tests.sim.broker import SimBroker
from broker_image.tests.sim.kernel import Host, Process, SimulationError
from broker_image.tests.sim.node import Fleet
from broker_image.tests.sim.replica import Replica
from broker_image.tests.sim.transactions.load import TransactionLoad
from broker_image.tests.sim.transactions.producers import TransactionalProducer
from broker_image.tests.sim.transactions.room import Transactions
from broker_image.tests.sim.transactions.shard import Shard

PEEK_MS = 900


class RunningTransactions:
    def __init__(self, fleet: Fleet, client: Host, brokers: Mapping[int, SimBroker]) -> None:
        self._fleet, self._kernel, self._brokers = fleet, fleet.kernel, brokers
        style = fleet.settings.style
        self._producers = [
            TransactionalProducer(fleet, client, number)
            for number in range(0 if style is None else len(style.protocols))
        ]
        self._client = client

    def begin(self) -> bool:
        """Whether a coordinator is there; then it has the ids, with the epochs that a seed begins with."""
        style = self._fleet.settings.style
        shards = [each for each in self._shards() if each.is_loaded]
        if not shards or style is None:
            return False
        if style.first_epoch:
            turn, take = shards[0].turn(), self._fleet.transactions.take_producer_id
            for producer in self._producers:
                fresh = new_transaction(take(), style.timeout_ms, turn.wall_ms)
                used = replace(fresh, epoch=ProducerEpoch(style.first_epoch))
                turn.write([TransactionRecord(producer.id, used)], lambda *_: None)
            shards[0].execute(turn)
        return True

    def run(self, load: Sequence[TransactionLoad]) -> None:
        """Carry them out, each at its time, or as soon as its producer is through with the ones before."""
        if self._fleet.settings.coordinator < 0:
            return
        for each in load:
            producer = self._producers[each.producer]
            self._kernel.at(each.at_ms, self._client, "transaction", producer.begin, each)
        self._kernel.spawn(self._fleet.store.host, "peek", self._peeking())

    def is_at_rest(self) -> bool:
        """No transaction is open anywhere, and no marker is due (L4); or decisions may be lost."""
        if self._fleet.settings.coordinator < 0:
            return True
        return self._fleet.transactions.has_lost or (
            all(each.is_idle for each in self._producers)
            and all(
                each.coordinator.is_idle and not each.coordinator.table.ongoing
                for each in self._shards()
            )
            and all(not len(each.sender.book) for each in self._rooms())
            and all(_is_stable(replica) for _, replica in self._replicas())
        )

    def state(self) -> str:
        """What is not at rest of transactions (L4)."""
        if self.is_at_rest():
            return ""
        shards = [each.coordinator.table.by_id for each in self._shards()]
        busy = [each.id for each in self._producers if not each.is_idle]
        return f"L4: ids {shards}, producers {busy}, markers {[len(each.sender.book) for each in self._rooms()]}; "

    def rests(self) -> None:
        """Judge all that is left."""
        for broker, replica in self._replicas():
            self._judge(broker, replica)
            log = replica.log
            end = log.last_stable_offset(replica.high_watermark)
            for start in range(log.start_offset, end):
                self._fleet.transactions.read(replica.index, log, start, end)
        self._fleet.transactions.rests()

    # inside

    def _rooms(self) -> Iterator[Transactions]:
        for broker in self._brokers.values():
            if broker.host.is_up and broker.transactions is not None:
                yield broker.transactions

    def _shards(self) -> Iterator[Shard]:
        return (room.shard for room in self._rooms() if room.shard is not None)

    def _replicas(self) -> Iterator[tuple[SimBroker, Replica]]:
        """Of partitions that hold transactions."""
        for broker in self._brokers.values():
            if broker.host.is_up:
                for index, replica in broker.leading.replicas.items():
                    if index != self._fleet.settings.coordinator:
                        yield broker, replica

    def _peeking(self) -> Process:
        """Readers of committed transactions, from any offset in any replica, and checks that cost more."""
        while True:
            yield PEEK_MS
            found = list(self._replicas())
            if found:
                broker, replica = found[self._kernel.draw("peek.replica", len(found))]
                log = replica.log
                end = log.last_stable_offset(replica.high_watermark)
                start = log.start_offset
                if end > start:
                    start += self._kernel.draw("peek.start", end - start)
                    until = start + 1 + self._kernel.draw("peek.end", end - start)
                    self._fleet.transactions.read(replica.index, log, start, until)
                self._judge(broker, replica)
            for shard in self._shards():
                difference = shard.differs_from_replay() if shard.is_loaded else None
                if difference is not None:
                    raise SimulationError(f"I34: {difference}")

    def _judge(self, broker: SimBroker, replica: Replica) -> None:
        self._fleet.transactions.equals_replay(replica.index, broker.id, replica.log)


def _is_stable(replica: Replica) -> bool:
    log = replica.log
    stable = log.last_stable_offset(replica.high_watermark)
    return replica.has_no_role or stable == log.end_offset
