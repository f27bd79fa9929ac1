"""Recognises a Produce request that repeats an earlier one but for correlation id and records.

A producer sends such requests all the time: one partition, the same client id, acks and timeout.
They are neither decoded nor encoded again: a template keeps what their bytes around the records
mean, and the answer's bytes; nothing of the broker's state. `appending` appends the batch, as for
`produce`, which serves every unusual case: then nothing has changed yet. A request that waits for
followers is usual: the partition's queue answers it (`ack_queue`). One that this broker itself
delays is not.
"""

import struct
from typing import Any, Final

from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.validation import Appended
from logfleet.node.dispatch import ParkedRequest, RequestContext
from logfleet.node.handlers.appending import Sender, append
from logfleet.node.handlers.host import PartitionHost
from logfleet.node.handlers.refused_batches import record_refused
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import HostedTopic
from logfleet.records.batch import HEADER_SIZE
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, encode_request, encode_response
from logfleet.wire.messages import ProduceRequest, ProduceResponse
from logfleet.wire.primitives import read_uvarint, uvarint

VERSION_MIN: Final = 7
"""Before it, not every codec is allowed, and answers lack fields."""

_HEAD = struct.Struct(">Ii")  # API key and version, correlation id
_LENGTH = struct.Struct(">i")
_ANSWER_HEAD = struct.Struct(">ii")  # size, correlation id
_OFFSETS_BYTES = 24  # base offset, log append time, log start offset


def remember(
    broker: PartitionHost,
    request: ProduceRequest,
    context: RequestContext,
    row: ProduceResponse.PartitionProduceResponse,
    *,
    by_id: bool,
) -> None:
    """A request with one partition succeeded, unless `row` has an error: keep a template of it."""
    peer = context.peer
    if (
        peer.repeats_left == 0
        or context.api_version < VERSION_MIN
        or request.transactional_id is not None
        or row.error_code
    ):
        return
    if not peer.repeat_end:
        peer.repeats = {}
    repeat = ProduceTemplate(broker, request, context, by_id=by_id)
    if repeat.around in peer.repeats:
        return
    peer.repeats_left -= 1
    # one length for all templates of a connection, so that one look-up is enough; they share at
    # least the length of the topic's name
    if peer.repeat_end in (0, repeat.end):
        peer.repeat_end = repeat.end
        peer.repeats[repeat.around] = repeat


class ProduceTemplate:
    """Answers requests with the same bytes before and behind the records.

    around: the bytes between the correlation id and the records' length, which ends at `end` of a
    frame.
    """

    __slots__ = (
        "_answer_parts",
        "_answer_size",
        "_broker",
        "_head",
        "_index",
        "_is_flexible",
        "_names",
        "_pack",
        "_refused",
        "_sender",
        "_tail",
        "_timeout_s",
        "_topic",
        "_topics",
        "api_key",
        "api_version",
        "around",
        "end",
    )

    def __init__(
        self,
        broker: PartitionHost,
        request: ProduceRequest,
        context: RequestContext,
        *,
        by_id: bool,
    ) -> None:
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        assert data.records is not None, "it was appended"
        api, version = api_of(ProduceRequest), context.api_version
        table = broker.partitions
        self._broker = broker
        self._topics: dict[Any, HostedTopic] = table.by_id if by_id else table.by_name
        self._topic = topic.topic_id if by_id else topic.name
        self._sender = Sender(version, context.client_id, request.acks)
        self._index = data.index
        self._refused = context.peer.refused
        self._is_flexible = api.request_header_version(version) == 2
        # as the codec writes it: a client that writes it otherwise is decoded each time
        pieces = encode_request(request, version, 0, context.client_id)
        before, *after = (bytes(piece) for piece in pieces if piece is not data.records)  # type: ignore[arg-type]
        length = uvarint(len(data.records) + 1) if self._is_flexible else bytes(_LENGTH.size)
        frame = before[SIZE_BYTES : len(before) - len(length)]
        self.api_key, self.api_version = api.key, version
        self._head, _ = _HEAD.unpack_from(frame)
        self.around, self.end = frame[_HEAD.size :], len(frame)
        self._tail = b"".join(after)
        self._names = topic.name, topic.topic_id
        self._timeout_s = max(0, request.timeout_ms) / 1000
        self._lay_out_answer()

    def _encoded(
        self, correlation_id: int, *, error: int = 0, base_offset: int = -1, others: int = -1
    ) -> bytes:
        """A whole answer. others: log append time and log start offset."""
        name, topic_id = self._names
        answer = ProduceResponse.PartitionProduceResponse(
            index=self._index,
            error_code=error,
            base_offset=base_offset,
            log_append_time_ms=others,
            log_start_offset=others,
        )
        rows = ProduceResponse.TopicProduceResponse(
            name=name, topic_id=topic_id, partition_responses=[answer]
        )
        body = ProduceResponse(responses=[rows])
        pieces = encode_response(api_of(ProduceRequest), self.api_version, correlation_id, body)
        return b"".join(pieces)  # type: ignore[arg-type]

    def _lay_out_answer(self) -> None:
        """Find where the offsets stand in the answer; keep the bytes around them."""
        one, other = (self._encoded(0, base_offset=each, others=each) for each in (0, -1))
        at = next(place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        before, after = one[_ANSWER_HEAD.size : at], one[at + _OFFSETS_BYTES :]
        assert other == one[:at] + b"\xff" * _OFFSETS_BYTES + after, "the offsets stand together"
        self._answer_size = len(one) - SIZE_BYTES
        self._answer_parts = before, after
        self._pack = struct.Struct(f">ii{len(before)}sqqq{len(after)}s").pack

    def __call__(self, frame: memoryview) -> "bytes | _Waiting | None":
        """The answer to a request that fits the template, or the request as one that waits for it.

        None if it is unusual after all.
        """
        at = self.end
        if len(frame) < at + HEADER_SIZE:
            return None
        head, correlation_id = _HEAD.unpack_from(frame)
        if self._is_flexible:
            size, start = read_uvarint(frame, at)
            size -= 1
        else:
            (size,), start = _LENGTH.unpack_from(frame, at), at + _LENGTH.size
        tail = self._tail
        end = start + size
        if (
            head != self._head
            or size < HEADER_SIZE
            or end + len(tail) != len(frame)
            or frame[end:] != tail
        ):
            return None
        hosted = self._topics.get(self._topic)
        partition = None if hosted is None else hosted.partitions.get(self._index)
        if partition is None or not (partition.is_current and partition.appends_at_once):
            return None
        if self._refused and (self._topic, self._index) in self._refused:
            return None
        result = append(self._broker, partition, self._sender, frame[start:end])
        if not isinstance(result, Appended):
            if not isinstance(result, BatchRefusal) or result.message is not None:
                return None
            error = result.error
            record_refused(self._refused, (self._topic, self._index), frame[start:end], error)
            return self._failed(correlation_id, error)
        if result.last_offset >= partition.high_watermark:
            assert partition.has_followers, "acknowledged before it is committed"
            if not partition.is_acked(result.last_offset + 1, self._sender.acks):
                return self._park(correlation_id, partition, result)
        return self._answer(correlation_id, partition, result)

    def _answer(self, correlation_id: int, partition: LeaderPartition, result: Appended) -> bytes:
        before, after = self._answer_parts
        return self._pack(
            self._answer_size,
            correlation_id,
            before,
            result.base_offset,
            result.log_append_time_ms,
            partition.log.log_start_offset,
            after,
        )

    def _park(
        self, correlation_id: int, partition: LeaderPartition, result: Appended
    ) -> "_Waiting":
        waiting = _Waiting(self, correlation_id, partition, result)
        waiting.acks, waiting.timeout_s = self._sender.acks, self._timeout_s
        self._broker.parked.produces += 1
        partition.ack_queue.add(waiting)
        return waiting

    def waited(self, waiting: "_Waiting", error: ErrorCode) -> bytes:
        """The answer to a request whose wait has ended."""
        self._broker.parked.produces -= 1
        if error is ErrorCode.NONE:
            return self._answer(waiting.correlation_id, waiting.partition, waiting.result)
        return self._failed(waiting.correlation_id, error)

    def _failed(self, correlation_id: int, error: ErrorCode) -> bytes:
        self._broker.dispatcher.stats["Produce"].failed_with([error])
        return self._encoded(correlation_id, error=error)


class _Waiting(ParkedRequest):
    """A request whose batch waits for its acknowledgement (an `AckWait`)."""

    __slots__ = (
        "acks",
        "correlation_id",
        "deadline_s",
        "end_offset",
        "partition",
        "repeat",
        "result",
        "timeout_s",
    )

    acks: int
    timeout_s: float | None
    deadline_s: float

    def __init__(
        self,
        repeat: ProduceTemplate,
        correlation_id: int,
        partition: LeaderPartition,
        result: Appended,
    ) -> None:
        self.repeat = repeat
        self.correlation_id = correlation_id
        self.partition = partition
        self.result = result
        self.end_offset = result.last_offset + 1

    def ended(self, error: ErrorCode) -> None:
        self.reply(self.repeat.waited, self, error)
