"""Recognises a Produce request that repeats an earlier one but for correlation id and records.

A producer sends such requests all the time: one partition, the same client id, acks and timeout.
They are neither decoded nor encoded again: a template keeps what the bytes around the records mean,
and the bytes of the answer around the offsets. It holds for the revision of the image by which
`produce` served such a request. So what `produce` decides by the image (the topic's configuration,
who leads it, in future who may write) is decided again by `produce` once the image has changed.
State that changes without the image is read each time, by `append`. Every unusual case is left to
`produce`, and then nothing has changed yet.
"""

import struct
from typing import Any, Final, cast

from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.validation import Appended
from logfleet.net.peer import REPEATS_MAX
from logfleet.node.dispatch import ParkedRequest, RequestContext
from logfleet.node.handlers.producing.appending import Sender, append
from logfleet.node.handlers.producing.refused_batches import record_refused
from logfleet.node.handlers.rooms import Rooms
from logfleet.records.batch import HEADER_SIZE
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, encode_request, encode_response
from logfleet.wire.messages import ProduceRequest, ProduceResponse
from logfleet.wire.primitives import read_uvarint, uvarint

VERSION_MIN: Final = 9
"""Since then lengths are varints (KIP-482)."""
_HEAD: Final = struct.Struct(">Ii")  # API key and version, correlation id
_ANSWER_HEAD: Final = struct.Struct(">ii")  # size, correlation id
_OFFSETS: Final = struct.Struct(">qqq")  # base offset, log append time, log start offset
_ANY_OFFSETS: Final = -2, -2, -2  # no other bytes of an answer look like them
_Row = ProduceResponse.PartitionProduceResponse
_Topic = ProduceResponse.TopicProduceResponse
_Offsets = tuple[int, int, int]


def remember(rooms: Rooms, request: ProduceRequest, context: RequestContext) -> None:
    """Keep a template of a request with one partition, whose batch was appended."""
    peer, revision = context.peer, rooms.metadata.image.revision
    if context.api_version < VERSION_MIN or request.transactional_id is not None:
        return
    if peer.repeats_revision != revision:  # wait for the second: the image may change on and on
        peer.repeats, peer.repeat_end = {}, 0
        peer.repeats_left, peer.repeats_revision = REPEATS_MAX, revision
    elif peer.repeats_left:
        peer.repeats_left -= 1
        template = ProduceTemplate(rooms, request, context)
        # One length for all templates of a connection, so that one look-up finds them.
        if peer.repeat_end in (0, template.end):
            peer.repeat_end = template.end
            peer.repeats[template.around] = template


class ProduceTemplate:
    """Answers requests with the same bytes before and behind the records.

    around: the bytes between the correlation id and the records' length, which ends at `end` of a
    frame. As the codec writes them: a client that writes them otherwise is decoded each time.
    """

    def __init__(self, rooms: Rooms, request: ProduceRequest, context: RequestContext) -> None:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        assert data.records is not None, "it was appended"
        self.api_key, self.api_version = api_of(ProduceRequest).key, context.api_version
        self._rooms, self._revision = rooms, rooms.metadata.image.revision
        self._topics: Any = rooms.partitions.by_name if topic.name else rooms.partitions.by_id
        self._names, self._refused = (topic.name, topic.topic_id), context.peer.refused
        self._key = topic.name or topic.topic_id, data.index
        self.sender = Sender(context.api_version, context.client_id, request.acks)
        self.timeout_s = max(0, request.timeout_ms) / 1000
        pieces = encode_request(request, context.api_version, 0, context.client_id)
        before, *after = (bytes(cast("Any", each)) for each in pieces if each is not data.records)
        frame = before[SIZE_BYTES : -len(uvarint(len(data.records) + 1))]
        self._head, _ = _HEAD.unpack_from(frame)
        self.around, self.end, self._tail = frame[_HEAD.size :], len(frame), b"".join(after)
        self._answer = self._encoded(0, _ANY_OFFSETS).split(_OFFSETS.pack(*_ANY_OFFSETS))

    def _encoded(self, error: int, offsets: _Offsets) -> bytes:
        """The codec's answer behind the correlation id."""
        row = _Row(index=self._key[1], error_code=error)
        row.base_offset, row.log_append_time_ms, row.log_start_offset = offsets
        topic = _Topic(name=self._names[0], topic_id=self._names[1], partition_responses=[row])
        answer = ProduceResponse(responses=[topic])
        pieces = encode_response(api_of(ProduceRequest), self.api_version, 0, answer)
        return b"".join(cast("list[bytes]", pieces))[_ANSWER_HEAD.size :]

    def __call__(self, frame: memoryview) -> "bytes | _Waiting | None":
        """The answer to a request that fits, or the request as one that waits for it, or None."""
        at, tail = self.end, self._tail
        if self._revision != self._rooms.metadata.image.revision or len(frame) < at + HEADER_SIZE:
            return None
        head, correlation_id = _HEAD.unpack_from(frame)
        size_and_one, start = read_uvarint(frame, at)
        end = start + size_and_one - 1
        is_whole = end - start >= HEADER_SIZE and end + len(tail) == len(frame)
        if head != self._head or not is_whole or frame[end:] != tail:
            return None
        key, refused = self._key, self._refused
        hosted = self._topics.get(key[0])
        partition = None if hosted is None else hosted.partitions.get(key[1])
        if partition is None or key in refused:
            return None
        if not (partition.is_current and partition.appends_at_once):
            return None
        result = append(self._rooms, partition, self.sender, frame[start:end])
        if not isinstance(result, Appended):
            error = result.error if isinstance(result, BatchRefusal) else None
            if error is not ErrorCode.KAFKA_STORAGE_ERROR:
                return None
            record_refused(refused, key, frame[start:end], error)  # the disk is not tried twice
            return self.answer(correlation_id, (-1, -1, -1), error)
        offsets = result.base_offset, result.log_append_time_ms, partition.ends.log_start_offset
        end_offset, acks = result.last_offset + 1, self.sender.acks
        if end_offset <= partition.ends.high_watermark or partition.is_acked(end_offset, acks):
            return self.answer(correlation_id, offsets)
        self._rooms.sessions.parked.produces += 1
        waiting = _Waiting(self, end_offset, offsets)
        partition.ack_queue.add(waiting)
        return waiting

    def answer(self, correlation_id: int, offsets: _Offsets, error: int = 0) -> bytes:
        if error:
            self._rooms.requests.stats["Produce"].failed_with([error])
            body = self._encoded(error, offsets)
        else:
            body = _OFFSETS.pack(*offsets).join(self._answer)
        return _ANSWER_HEAD.pack(len(body) + SIZE_BYTES, correlation_id) + body

    def waited(self, correlation_id: int, offsets: _Offsets, error: ErrorCode) -> bytes:
        self._rooms.sessions.parked.produces -= 1
        is_lost = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.answer(correlation_id, (-1, -1, -1) if is_lost else offsets, error)


class _Waiting(ParkedRequest):
    """A request whose batch waits for its acknowledgement (an `AckWait`)."""

    deadline_s: float

    def __init__(self, template: ProduceTemplate, end_offset: int, offsets: _Offsets) -> None:
        self.template, self.end_offset, self.offsets = template, end_offset, offsets
        self.acks, self.timeout_s = template.sender.acks, template.timeout_s

    def ended(self, error: ErrorCode) -> None:
        self.reply(self.template.waited, self._correlation_id, self.offsets, error)
