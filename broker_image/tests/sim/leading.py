"""What a simulated broker does for the partitions that it leads: appends, followers' fetches, consumers' reads, changes of the ISR."""

import msgspec
from logfleet.log.producers.states import SeenBatch
from logfleet.metadata.store import Put, Txn
from logfleet.replication import fetch_check, isr_write
from logfleet.replication.follower import NextFetch
from logfleet.replication.isr_write import Alone, Lost, Won
from logfleet.replication.leader import IsrChange
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Process
from broker_image.tests.sim.messages import (
    Fetch,
    Produce,
    Produced,
    Range,
    Read,
    ReadAnswer,
    Row,
)
from broker_image.tests.sim.net import Reply
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica import Replica
from broker_image.tests.sim.replica_log import Batch, ReplicaLog

ISR_WAIT_MS = 50
DELETE_CHECK_MS, DELETE_CHECKS = 250, 20


class Parked(msgspec.Struct):
    """A fetch that found nothing new. is_answered: it has been answered since."""

    fetch: Fetch
    reply: Reply
    is_answered: bool = False


class Leading:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.replicas: dict[int, Replica] = {}
        self._parked: list[Parked] = []
        self._is_isr_check_due = False

    def add(self, index: int, log: ReplicaLog, high_watermark: int) -> Replica:
        replica = self.replicas[index] = Replica(self._node, index, log, high_watermark)
        return replica

    def stop_all(self) -> None:
        for replica in self.replicas.values():
            replica.stop()

    # clients

    def produce(self, request: Produce, reply: Reply) -> None:
        replica = self.replicas.get(naming.named(self._node.image, request.index))
        if replica is None or replica.leading is None:
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        kernel, leading, log = self._node.fleet.kernel, replica.leading, replica.log
        if request.is_acks_all and not leading.is_at_min_isr:
            kernel.sometimes("a produce was refused below min ISR")
            reply(Produced(ErrorCode.NOT_ENOUGH_REPLICAS))
            return
        judged = log.judge(request.value, request.producer, request.sequence)
        if isinstance(judged, ErrorCode):
            self._node.fleet.checker.out_of_order(replica.index, replica.leader_epoch, log, request)
            reply(Produced(judged))
            return
        if isinstance(judged, SeenBatch):
            kernel.sometimes("a repeated batch was recognised")
            offset = judged.first_offset
        else:
            offset = log.end_offset
            batch = Batch(
                offset, replica.leader_epoch, request.value, request.producer, request.sequence
            )
            replica.append(batch)
        if request.is_acks_all:
            replica.waiting.append((offset, request.value, reply))
            replica.waiting.sort(key=lambda waiting: waiting[0])
        else:
            reply(Produced(ErrorCode.NONE, offset))
        leading.appended(log.end_offset)
        replica.moved()
        self._wake(replica.index)

    def read(self, request: Read, reply: Reply) -> None:
        replica = self.replicas.get(request.index)
        if replica is None or replica.leading is None:
            reply(ReadAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if request.leader_epoch != replica.leader_epoch:
            reply(
                ReadAnswer(
                    fetch_check.leader_epoch_error(
                        LeaderEpoch(request.leader_epoch), LeaderEpoch(replica.leader_epoch)
                    )
                )
            )
            return
        log, offset = replica.log, request.offset
        if not log.start_offset <= offset <= log.end_offset:
            if offset > log.end_offset:
                self._node.fleet.checker.went_back(
                    request.index, offset, log.end_offset, request.read_epoch
                )
            reply(ReadAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start=log.start_offset))
            return
        batches = log.read(offset, replica.high_watermark)
        self._node.fleet.checker.consumed(request.index, offset, batches, replica.leader_epoch)
        reply(ReadAnswer(ErrorCode.NONE, batches))

    # followers

    def range(self, request: Range, reply: Reply) -> None:
        replica = self.replicas.get(naming.named(self._node.image, request.index))
        if (
            replica is None
            or replica.leading is None
            or replica.leader_epoch != request.leader_epoch
        ):
            reply(None)
        else:
            reply((replica.log.start_offset, replica.log.end_offset))

    def fetch(self, request: Fetch, reply: Reply) -> None:
        rows: dict[int, Row] = {}
        for index, asked in request.rows.items():
            refusal = self._progress(request, index, asked)
            row = refusal or self._row(request, index, asked)
            if row is not None:
                rows[index] = row
        if rows:
            reply(rows)
            return
        parked = Parked(request, reply)
        self._parked.append(parked)
        self._node.fleet.kernel.at(
            request.wait_ms, self._node.host, "fetch.wait", self._answer, parked, rows
        )

    def _fetched(self, index: int) -> Replica | None:
        """Whose records a follower means. It names the topic id: one of that name may be another."""
        return self.replicas.get(index)

    def _progress(self, request: Fetch, index: int, asked: NextFetch) -> Row | None:
        """What the fetch says of its sender; a row if the leader has to say something else first."""
        replica = self._fetched(index)
        leading = None if replica is None else replica.leading
        if replica is None or leading is None:
            return Row(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        kernel, log = self._node.fleet.kernel, replica.log
        error = fetch_check.leader_epoch_error(
            asked.leader_epoch, LeaderEpoch(replica.leader_epoch)
        )
        if error != ErrorCode.NONE:
            kernel.sometimes(f"a fetch was refused: {error.name}")
            return Row(error)
        diverging = fetch_check.diverging_epoch(
            log.epochs,
            log.start_offset,
            log.end_offset,
            last_fetched_epoch=asked.last_fetched_epoch,
            fetch_offset=asked.offset,
            of_follower=True,
        )
        if isinstance(diverging, ErrorCode):
            return Row(diverging)
        if diverging is not None:
            kernel.sometimes("a fetch diverged")
            return Row(diverging=diverging, log_start=log.start_offset)
        if not log.start_offset <= asked.offset <= log.end_offset:
            return Row(ErrorCode.OFFSET_OUT_OF_RANGE)
        before = leading.high_watermark
        moved = leading.fetched(
            request.replica,
            BrokerEpoch(request.broker_epoch),
            asked.offset,
            request.starts[index],
            now_ms=kernel.now,
        )
        if isinstance(moved, ErrorCode):
            kernel.sometimes(f"a fetch was refused: {moved.name}")
            return Row(moved)
        if leading.isr_change_due:
            self._check_soon()
        if leading.high_watermark != before:
            replica.moved()
            self._wake(index)
        elif not leading.is_at_min_isr and leading.state.isr and asked.offset > before:
            kernel.sometimes("the high watermark was held back below min ISR")
        return None

    def _row(self, request: Fetch, index: int, asked: NextFetch) -> Row | None:
        """What is new to the follower, None if nothing is."""
        replica = self._fetched(index)
        if replica is None or replica.leading is None:
            return Row(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if replica.leader_epoch != asked.leader_epoch:
            return Row(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        most = self._node.fleet.settings.fetch_batches
        log, told = replica.log, (replica.high_watermark, replica.log.start_offset)
        batches = log.read(asked.offset, asked.offset + most)
        if not batches and told <= request.known[index]:
            return None
        return Row(batches=batches, high_watermark=told[0], log_start=told[1])

    def _wake(self, index: int) -> None:
        for parked in self._parked:
            asked = parked.fetch.rows.get(index)
            if asked is not None and not parked.is_answered:
                row = self._row(parked.fetch, index, asked)
                if row is not None:
                    self._answer(parked, {index: row})

    def _answer(self, parked: Parked, rows: dict[int, Row]) -> None:
        if not parked.is_answered:
            parked.is_answered = True
            parked.reply(rows)
        self._parked = [each for each in self._parked if not each.is_answered]

    # deleting

    def delete_records(self, index: int, offset: int) -> None:
        """DeleteRecords (KIP-107): answered once all live replicas start there."""
        replica = self.replicas[index]
        replica.delete_before(offset)
        self._wake(index)
        self._node.fleet.kernel.spawn(
            self._node.host, "delete", self._deleting(replica, offset, replica.leader_epoch)
        )

    def _deleting(self, replica: Replica, offset: int, leader_epoch: int) -> Process:
        node = self._node
        for _ in range(DELETE_CHECKS):
            leading, image = replica.leading, node.image
            if leading is None or replica.leader_epoch != leader_epoch:
                return
            live = {
                (each.id, each.epoch)
                for each in image.brokers.values()
                if each.is_active and each.id in leading.state.replicas
            }
            ids = {broker_id for broker_id, _ in live}
            if leading.low_watermark(replica.log.start_offset, ids.__contains__) >= offset:
                node.fleet.kernel.sometimes("records were deleted in all live replicas")
                node.fleet.checker.deleted(replica.index, offset, live)
                return
            yield DELETE_CHECK_MS

    # the ISR

    def checking(self) -> Process:
        """As Kafka's isr-expiration: half of replica.lag.time.max.ms."""
        while True:
            yield self._node.fleet.settings.lag_max_ms // 2
            self._check()

    def _check_soon(self) -> None:
        if not self._is_isr_check_due:
            self._is_isr_check_due = True
            self._node.fleet.kernel.at(ISR_WAIT_MS, self._node.host, "isr.soon", self._check)

    def _check(self) -> None:
        self._is_isr_check_due = False
        node = self._node
        if not node.is_registered:
            return
        changes: dict[str, tuple[Replica, IsrChange]] = {}
        for replica in self.replicas.values():
            if replica.leading is not None:
                change = replica.leading.isr_change(node.fleet.kernel.now, self._is_eligible)
                replica.moved()
                if change is not None:
                    changes[naming.key_of(replica.index)] = replica, change
        if changes:
            self._write(changes)

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        image = self._node.image
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or not broker.is_active:
            return False
        topic = image.topic(naming.TOPIC)
        return topic is None or not image.is_offline(broker_id, topic.id, 0)  # all, or none

    def _write(self, changes: dict[str, tuple[Replica, IsrChange]]) -> None:
        node = self._node
        assert node.epoch is not None
        wanted = {key: change for key, (_, change) in changes.items()}
        txns = isr_write.isr_txns(node.image, (node.id, BrokerEpoch(node.epoch)), wanted)
        sent = {write.key for txn in txns for write in txn.success if isinstance(write, Put)}
        for key, (replica, change) in changes.items():
            leading = replica.leading or replica.suspended
            if key not in sent and leading is not None and leading.pending is change:
                node.fleet.kernel.sometimes("an ISR change was given up before it was sent")
                leading.lost(leading.state, leading.revision)
                if replica.leading is not None:
                    replica.moved()
        for txn in txns:
            node.fleet.kernel.spawn(node.host, "isr.write", self._writing(txn, changes))

    def _writing(self, txn: Txn, changes: dict[str, tuple[Replica, IsrChange]]) -> Process:
        """Commit it until the answer is definite, whatever this broker has become meanwhile."""
        node = self._node
        for write in txn.success:
            if isinstance(write, Put):
                replica, change = changes[write.key]
                node.note("writes isr %s of partition %s", change.state.isr, replica.index)
        result, _ = yield from node.fleet.store.settle(node.host, txn)
        wanted = {key: change for key, (_, change) in changes.items()}
        for key, answer in isr_write.read_answer(txn, result, wanted).items():
            replica, change = changes[key]
            if isinstance(answer, Lost) and _goes_on(replica, answer):
                while not isr_write.is_shown(node.image, txn, result):
                    yield ISR_WAIT_MS
            leading = replica.leading or replica.suspended
            if leading is None or leading.pending is not change:
                continue
            match answer:
                case Won(revision):
                    leading.won(revision)
                case Lost(state, revision):
                    node.fleet.kernel.sometimes("an ISR change came too late")
                    if not leading.lost(state, revision):
                        replica.stop()
                        continue
                case Alone():
                    node.fleet.kernel.sometimes("an ISR change was written anew, alone")
                    if node.epoch is not None:
                        self._write({key: (replica, change)})
                    continue
            if replica.leading is not None:
                replica.moved()
                self._wake(replica.index)


def _goes_on(replica: Replica, answer: Lost) -> bool:
    """Whether the leader epoch has not ended, by what is in the store.

    If it has, the leader stops before its image shows that: the broker applies images later than it
    sees them.
    """
    return answer.state is not None and answer.state.leader_epoch == replica.leader_epoch
