"""Produce requests of one batch as bytes, and what a dispatcher answers to them."""

from typing import Any

import pytest
from logfleet.net.connection import CloseConnection
from logfleet.net.peer import Peer
from logfleet.node.dispatch import Dispatcher
from logfleet.node.handlers.producing.produce import HANDLERS
from logfleet.records.record import Record, build_batch
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request
from logfleet.wire.messages import ProduceRequest

from broker_image.tests.unit.node.peer_rig import FakeLink

NOW = 1_700_000_000_000
API = API_BY_NAME["Produce"]


def batch(*values: bytes, **given: Any) -> bytearray:
    return build_batch([Record(None, value, NOW) for value in values or (b"v",)], **given)


def frame(
    version: int,
    records: bytes | bytearray | None,
    *,
    number: int = 1,
    topic: str = "topic",
    index: int = 0,
    **given: Any,
) -> bytes:
    data = ProduceRequest.PartitionProduceData(
        index=index, records=None if records is None else memoryview(records)
    )
    by_id = version >= 13
    rows = ProduceRequest.TopicProduceData(
        name="" if by_id else topic,
        topic_id=topic.encode().ljust(16, b"-") if by_id else bytes(16),
        partition_data=[data],
    )
    whole: dict[str, Any] = {"acks": -1, "timeout_ms": 1000, "topic_data": [rows]}
    request = ProduceRequest(**whole | given)
    return b"".join(encode_request(request, version, number, "c"))[SIZE_BYTES:]  # type: ignore[arg-type]


class Side:
    """A broker and its client. forgets: each request has its own connection, so all are decoded."""

    def __init__(self, host: Any, *, forgets: bool) -> None:
        self.host = host
        self.dispatch = Dispatcher(host, HANDLERS)
        host.requests = self.dispatch.requests
        self.connect()
        self.forgets = forgets

    def connect(self) -> None:
        self.peer = Peer("PLAINTEXT")
        # as if it had sent a request
        self.peer.repeats, self.peer.repeats_revision = {}, self.host.image.revision
        self.link = FakeLink(self.peer)

    def ask(self, sent: bytes) -> object:
        if self.forgets:
            self.connect()
        try:
            return self.dispatch(self.peer, memoryview(bytearray(sent)))
        except CloseConnection as error:
            return str(error)

    def refuse_to_decode(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def decode(*_: object) -> None:
            raise AssertionError("it was decoded")

        monkeypatch.setattr("logfleet.node.dispatch.decode_request_header", decode)


def row(answer: Any, version: int, number: int = 1) -> Any:
    told, body = decode_response(API, version, answer[SIZE_BYTES:])
    assert told == number
    ((only,),) = [topic.partition_responses for topic in body.responses]  # type: ignore[attr-defined]
    return only


def stored(side: Side, topic: str = "topic", index: int = 0) -> bytes:
    log = side.host.partitions.get(topic, index).log
    piece = log.read(log.log_start_offset, 1 << 20)
    return b"" if piece is None else piece.read()
