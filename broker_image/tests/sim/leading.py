"""What a simulated broker does for the partitions that it leads: appends, followers' fetches, consumers' reads."""

import msgspec
from logfleet.log.producers.states import SeenBatch
from logfleet.replication import fetch_check
from logfleet.replication.follower import NextFetch
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim import naming
from broker_image.tests.sim.isr_writing import IsrWriting
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
        self.isr = IsrWriting(node, self.replicas)

    def add(self, index: int, log: ReplicaLog, high_watermark: int) -> Replica:
        replica = self.replicas[index] = Replica(self._node, index, log, high_watermark)
        replica.on_news = self._wake
        return replica

    def stop_all(self) -> None:
        for replica in self.replicas.values():
            replica.stop()

    # clients

    def led(self, index: int) -> Replica | None:
        """The topic's partition of that index, if it is led here."""
        replica = self.replicas.get(naming.named(self._node.image, index))
        return None if replica is None or replica.leading is None else replica

    def produce(self, request: Produce, reply: Reply) -> None:
        replica = self.led(request.index)
        if replica is None or replica.leading is None:
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        kernel, leading, log = self._node.fleet.kernel, replica.leading, replica.log
        if request.is_acks_all and not leading.is_at_min_isr:
            kernel.sometimes("a produce was refused below min ISR")
            reply(Produced(ErrorCode.NOT_ENOUGH_REPLICAS))
            return
        judged = log.judge(request.batch)
        if isinstance(judged, ErrorCode):
            self._node.fleet.checker.out_of_order(replica.index, replica.leader_epoch, log, request)
            reply(Produced(judged))
            return
        if isinstance(judged, SeenBatch):
            kernel.sometimes("a repeated batch was recognised")
            is_new = False
            offset = judged.first_offset
        else:
            offset = log.end_offset
            batch = Batch(
                offset,
                replica.leader_epoch,
                request.value,
                request.producer,
                request.sequence,
                request.part,
            )
            replica.append(batch)
            if batch.part is not None:
                self._node.fleet.transactions.written(replica.index, log, batch)
            is_new = True
        if request.is_acks_all:
            replica.waiting.append((offset, request.value, reply))
            replica.waiting.sort(key=lambda waiting: waiting[0])
        else:
            reply(Produced(ErrorCode.NONE, offset))
        if is_new:
            replica.ends.appended(1)
        replica.judge()  # a repeated batch may be committed already

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
        before = replica.high_watermark
        refused = replica.ends.fetched(
            request.replica,
            BrokerEpoch(request.broker_epoch),
            asked.offset,
            request.starts[index],
            now_ms=kernel.now,
        )
        if refused is not ErrorCode.NONE:
            kernel.sometimes(f"a fetch was refused: {refused.name}")
            return Row(refused)
        if leading.isr_change_due:
            self.isr.check(replica)
        if (
            replica.high_watermark == before
            and not leading.is_at_min_isr
            and leading.state.isr
            and asked.offset > before
        ):
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
