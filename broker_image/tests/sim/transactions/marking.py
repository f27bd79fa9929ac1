"""How markers get from a simulated coordinator into logs: `node.transactions.marker_sender` and `marker_appends`.

The book of markers is the product's. A request may be lost, or come again long after it was sent.
"""

from functools import partial

from logfleet.node.transactions.marker_appends import MarkerCall
from logfleet.records.control import Marker
from logfleet.transactions.markers import NO_LEADER, MarkerAnswer, MarkerBook, MarkersDue
from logfleet.transactions.state import TopicPartition
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersResponse

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Process
from broker_image.tests.sim.leading import Leading
from broker_image.tests.sim.messages import Produced
from broker_image.tests.sim.net import Reply, Server
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica import Replica
from broker_image.tests.sim.replica_log import Batch, Part
from broker_image.tests.sim.transactions.requests import WritableMarker, Write
from broker_image.tests.sim.transactions.shard import Shard

RETRY_MS_MIN, RETRY_MS_MAX = 50, 1_000
LATE_MS = 9_000
"""A copy of a request comes within this time."""


class MarkerSender:
    """One broker's: markers that its coordinator has to get written."""

    def __init__(self, node: Node, appends: "MarkerAppends") -> None:
        self.book = MarkerBook(self._leader_of)
        self._node, self._kernel = node, node.fleet.kernel
        self._appends = appends
        self._answers: list[MarkerAnswer] = []
        self._will_send = self._will_retry = False
        self._pause_ms = RETRY_MS_MIN

    def due(self, shard: Shard, markers: list[MarkersDue]) -> None:
        for each in markers:
            epoch = LeaderEpoch(shard.leader_epoch)
            self._answers += self.book.due(shard, epoch, each, self._kernel.now)
        self._send_soon()

    def drop(self, shard: Shard) -> None:
        self.book.forget(shard)

    def release(self) -> None:
        """Leaders may have changed, or it is time to try again."""
        self._answers += self.book.release()
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._will_send:
            self._will_send = True
            self._kernel.at(0, self._node.host, "markers", self._send)

    def _send(self) -> None:
        self._will_send = False
        answers, self._answers = self._answers, []
        for answer in answers:
            assert isinstance(answer.owner, Shard)
            answer.owner.markers_written(answer)
        for broker_id in self.book.brokers():
            if not self._node.may_answer:
                self._lost(broker_id)
            elif broker_id == self._node.id:
                call = self._appends.append(self.book.take(broker_id))
                call.on_done = partial(self._appended, call)
                if not call.waiting:
                    self._appended(call)
            else:
                markers = tuple(self.book.take(broker_id))
                self._kernel.spawn(self._node.host, "markers", self._asking(broker_id, markers))
        if self.book.needs_release and not self._will_retry:
            self._will_retry = True
            self._kernel.at(self._pause_ms, self._node.host, "markers", self._retry)
            self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def _asking(self, broker_id: int, markers: tuple[WritableMarker, ...]) -> Process:
        if not markers:
            return
        kernel, net, host = self._kernel, self._node.fleet.net, self._node.host
        request, target = Write(markers), f"b{broker_id}"
        if kernel.tape.chance("txn.late", 6):
            kernel.sometimes("markers came again late")
            late_ms = kernel.draw("txn.late_ms", LATE_MS)
            server = net.servers[target]
            kernel.at(late_ms, server.host, "late", _arrive_late, server, host.name, request)
        answer = yield net.call(host, target, request)
        is_lost = kernel.tape.chance("txn.lost", 6)
        if is_lost:
            kernel.sometimes("an answer about markers was lost")
        if is_lost or not isinstance(answer, WriteTxnMarkersResponse):
            self._lost(broker_id)
            return
        answers = self.book.answered(broker_id, answer)
        if answers:
            self._pause_ms = RETRY_MS_MIN
        self._answers += answers
        self._send_soon()

    def _appended(self, call: MarkerCall) -> None:
        self._answers += self.book.answered(self._node.id, call.response())
        self._send_soon()

    def _retry(self) -> None:
        self._will_retry = False
        self.release()

    def _lost(self, broker_id: int) -> None:
        self.book.lost(broker_id)
        self._send_soon()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """As the sender's of the product: None if the partition does not exist."""
        image = self._node.image
        topic = image.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        leader = topic.partitions[partition.partition].leader
        return leader if leader in image.brokers else NO_LEADER


def _arrive_late(server: Server, sender: str, request: Write) -> None:
    """Nobody waits for the answer any more."""
    if server.host.is_up:
        server.serve(sender, request, lambda _: None)


class MarkerAppends:
    """One broker's: markers for the partitions that it leads."""

    def __init__(self, node: Node, leading: Leading) -> None:
        self._node, self._leading = node, leading

    def write(self, request: Write, reply: Reply) -> None:
        """WriteTxnMarkers: answered once each marker is committed or refused."""
        call = self.append(request.markers)
        call.on_done = lambda: reply(call.response())
        if not call.waiting:
            call.on_done()

    def append(self, markers: "tuple[WritableMarker, ...] | list[WritableMarker]") -> MarkerCall:
        """Append all that can be appended. `on_done` of the call is to be set at once."""
        call = MarkerCall(markers)
        for name, due in call.markers.items():
            replica = self._find(name)
            if isinstance(replica, ErrorCode):
                call.errors[name] = [replica] * len(due)
            else:
                call.errors[name] = [
                    self._append(replica, marker, version) for marker, version in due
                ]
                self._await(call, name, replica)
        return call

    def _find(self, name: tuple[str, int]) -> Replica | ErrorCode:
        replica = self._leading.replicas.get(naming.named(self._node.image, name[1]))
        if replica is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if replica.leading is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return replica if replica.leading.is_at_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS

    def _append(self, replica: Replica, marker: Marker, version: int) -> ErrorCode:
        """As `PartitionLog.append_markers`."""
        log, checker = replica.log, self._node.fleet.transactions
        error = log.producers.check_marker(marker, version)
        if error is not None:
            self._node.fleet.kernel.sometimes(f"a log refused a marker: {error.name}")
            return error
        transactional_id = checker.id_of(marker.producer_id)
        kind = "commit" if marker.is_commit else "abort"
        batch = Batch(
            log.end_offset,
            replica.leader_epoch,
            f"{kind} {marker.producer_id}/{marker.epoch}",
            marker.producer_id,
            part=Part(transactional_id, marker.epoch, marker),
        )
        checker.marked(replica.index, log, batch, version)
        replica.append(batch)
        replica.guards.marked(marker.producer_id, marker.epoch, version)
        replica.ends.appended(1)
        return ErrorCode.NONE

    def _await(self, call: MarkerCall, name: tuple[str, int], replica: Replica) -> None:
        end_offset = replica.log.end_offset
        if ErrorCode.NONE in call.errors[name] and end_offset > replica.high_watermark:
            call.waiting += 1
            last = replica.log.at(end_offset - 1)

            def ended(answer: Produced) -> None:
                self._node.fleet.kernel.at(
                    0, self._node.host, "marked", call.ended, name, answer.error
                )

            replica.wait(last.offset, last.value, ended)
