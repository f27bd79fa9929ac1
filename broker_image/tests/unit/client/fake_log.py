"""What a fake broker needs to take records: a log of each partition of its topic."""

import asyncio
from typing import Any

from logfleet.records.batch import parse_header
from logfleet.records.record import read_records
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from broker_image.tests.unit.client.fake_broker import TOPIC_ID, FakeBroker


class Log:
    """Takes Produce: values by partition, and the header of every batch that came.

    outcomes: what to do with the next requests: an error code, CLOSE (written, but no answer) or 0.
    batch_bytes_max: larger batches are refused, as by max.message.bytes. refused: partition -> code that its batches get.
    """

    batch_bytes_max: float = float("inf")

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.values: dict[int, list[bytes | None]] = {}
        self.headers: list[Any] = []
        self.outcomes: list[int | bytes] = []
        self.refused: dict[int, int] = {}
        self.arrived = asyncio.Event()
        self.taken = asyncio.Event()
        self.held: asyncio.Event | None = None
        self.producer_ids = 0
        broker.answers[ProduceRequest] = self.produce
        broker.answers[InitProducerIdRequest] = self.identify

    def identify(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        assert request.transactional_id is None
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    async def produce(self, request: ProduceRequest) -> ProduceResponse | bytes | None:
        self.arrived.set()
        if self.held is not None:
            await self.held.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else 0
        rows = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = bytes(data.records or b"")
                header = parse_header(records)
                row = ProduceResponse.PartitionProduceResponse(index=data.index)
                self.headers.append(header)
                if isinstance(outcome, int) and outcome:
                    row.error_code, row.base_offset = outcome, -1
                elif data.index in self.refused:
                    row.error_code, row.base_offset = self.refused[data.index], -1
                elif len(records) > self.batch_bytes_max:
                    row.error_code, row.base_offset = ErrorCode.MESSAGE_TOO_LARGE, -1
                else:
                    row.base_offset = self.append(data.index, header, records)
                rows.append(row)
        if request.acks == 0:
            return None
        if outcome == FakeBroker.CLOSE:
            return FakeBroker.CLOSE
        name = request.topic_data[0].name  # empty in versions that have the id
        answer = ProduceResponse.TopicProduceResponse(
            name=name, topic_id=TOPIC_ID, partition_responses=rows
        )
        return ProduceResponse(responses=[answer])

    def append(self, index: int, header: Any, records: bytes) -> int:
        log = self.values.setdefault(index, [])
        values = [record.value for record in read_records(records)]
        sent_before = [
            earlier
            for earlier in self.headers[:-1]
            if header.producer_id >= 0
            and (earlier.producer_id, earlier.base_sequence, earlier.crc)
            == (header.producer_id, header.base_sequence, header.crc)
        ]
        if sent_before and log[-len(values) :] == values:
            return len(log) - len(values)  # a duplicate: answered, not written
        log += values
        self.taken.set()
        return len(log) - len(values)
