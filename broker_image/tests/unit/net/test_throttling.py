import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from logfleet.metadata.image import Quotas
from logfleet.net import throttling
from logfleet.net.peer import Peer
from logfleet.net.throttling import Timed, Usage
from logfleet.node.dispatch import Dispatcher, RequestContext
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.quotas.rates import Windows
from logfleet.wire.apis import api_of
from logfleet.wire.encoded_rows import EncodedRows
from logfleet.wire.frame import decode_response, encode_request
from logfleet.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    FetchRequest,
    FetchResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ProduceRequest,
    ProduceResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from broker_image.tests.unit.node.peer_rig import FakeLink

NOW_MS = 9_000_000


class Rig:
    """A dispatcher whose handlers take `busy_s` and answer what `answer` makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.busy_s = 0.0
        self.seen: list[Any] = []
        self.mutation_ms = 0
        self.quotas = ClientQuotas(Windows(), Windows(), lambda: NOW_MS)
        self.peer = Peer("PLAINTEXT")
        self.throttled = FakeLink(self.peer).throttles
        monkeypatch.setattr(throttling, "boot_s", lambda: self.seconds)
        monkeypatch.setattr("logfleet.node.dispatch.boot_s", lambda: self.seconds)
        self.dispatcher: Dispatcher[None] = Dispatcher(
            None,
            {
                ListGroupsRequest: self._handle(ListGroupsResponse),
                ProduceRequest: lambda _, request, __: ProduceResponse() if request.acks else None,
                FetchRequest: self._fetch,
                CreateTopicsRequest: self._later,
                DescribeConfigsRequest: self._rows,
                EnvelopeRequest: self._handle(EnvelopeResponse),
                SaslHandshakeRequest: self._handle(SaslHandshakeResponse),
            },
        )

    def limit(self, **values: float) -> None:
        self.quotas.update({(("client-id", "c"),): Quotas(values)})
        self.dispatcher.quotas = self.quotas

    def _handle(self, response: Any) -> Any:
        def handle(_: None, request: Any, context: RequestContext) -> Any:
            self.seconds += self.busy_s
            return response()

        return handle

    def _fetch(self, _: None, request: FetchRequest, context: RequestContext) -> FetchResponse:
        self.seen.append(request.max_bytes)
        row = FetchResponse.PartitionData(records=bytes(5_000))
        answer = FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(partitions=[row])], session_id=5
        )
        assert context.usage is not None
        throttle_ms = context.usage.fetched(answer)
        return FetchResponse(throttle_time_ms=throttle_ms) if throttle_ms else answer

    async def _later(self, *_: object) -> CreateTopicsResponse:
        self.seconds += self.busy_s
        waiting = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._time_passes, waiting)
        await waiting
        self.seconds += self.busy_s
        return CreateTopicsResponse(throttle_time_ms=self.mutation_ms)

    async def _rows(self, *_: object) -> EncodedRows:
        self.seconds += self.busy_s
        return EncodedRows(DescribeConfigsResponse(), 4)

    def _time_passes(self, waiting: "asyncio.Future[None]") -> None:
        self.seconds += 1_000
        waiting.set_result(None)

    def ask(self, request: Any, version: int, client_id: str = "c") -> Any:
        frame = b"".join(cast("list[bytes]", encode_request(request, version, 7, client_id)))[4:]
        answer = self.dispatcher(self.peer, memoryview(bytearray(frame)))
        if isinstance(answer, Awaitable):
            answer = asyncio.run(self._until(answer))
        if answer is None:
            return None
        data = b"".join(cast("list[bytes]", answer)) if isinstance(answer, list) else answer
        assert isinstance(data, bytes)
        return decode_response(api_of(type(request)), version, data[4:])[1]

    @staticmethod
    async def _until(answer: Awaitable[Any]) -> Any:
        return await answer


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def produce(acks: int, size: int) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(records=bytes(size))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=acks, topic_data=[topic])


def test_a_producer_is_answered_and_throttled(rig: Rig) -> None:
    rig.limit(producer_byte_rate=100.0)
    assert rig.ask(produce(-1, 900), 9).throttle_time_ms == 0
    told = rig.ask(produce(-1, 900), 9).throttle_time_ms
    assert 8_000 < told < 10_000
    assert rig.throttled == [told]
    assert (rig.quotas.produce.throttled, rig.quotas.produce.throttled_ms) == (1, told)


def test_a_producer_that_wants_no_answer_is_held_all_the_same(rig: Rig) -> None:
    rig.limit(producer_byte_rate=100.0, request_percentage=0.001)
    assert rig.ask(produce(0, 2_000), 9) is None
    (held,) = rig.throttled
    assert held > 10_000
    assert rig.quotas.request.throttled == 0


def test_others_are_not_held(rig: Rig) -> None:
    rig.limit(producer_byte_rate=1.0)
    assert rig.ask(produce(-1, 2_000), 9, client_id="another").throttle_time_ms == 0
    assert rig.throttled == []


def test_a_consumer_gets_no_records_and_they_do_not_count(rig: Rig) -> None:
    rig.limit(consumer_byte_rate=520.0)
    ask = FetchRequest(max_bytes=1_000_000)
    first = rig.ask(ask, 12)
    assert (first.session_id, first.throttle_time_ms) == (5, 0)
    for _ in range(2):
        again = rig.ask(ask, 12)
        assert (again.responses, again.throttle_time_ms) == ([], rig.throttled[-1])
    assert rig.throttled[0] == rig.throttled[1] > 9_000
    assert rig.seen == [5_200] * 3


def test_time_on_the_loop_is_charged(rig: Rig) -> None:
    """0.2 s in ten windows are 2 % of a second: 100 % over the quota, so 10 s.

    The throttle is limited to one window at a time.
    """
    rig.limit(request_percentage=1.0)
    rig.busy_s = 0.1
    assert rig.ask(ListGroupsRequest(), 3).throttle_time_ms == 0
    assert rig.ask(ListGroupsRequest(), 3).throttle_time_ms == 1_000
    assert rig.throttled == [1_000]


def test_an_answer_that_is_encoded_already_reports_for_how_long_its_client_is_throttled(
    rig: Rig,
) -> None:
    rig.limit(request_percentage=1.0)
    rig.busy_s = 5.0
    assert rig.ask(DescribeConfigsRequest(), 4).throttle_time_ms == 1_000
    assert rig.throttled == [1_000]


def test_waiting_is_not_charged(rig: Rig) -> None:
    rig.limit(request_percentage=1.0)
    rig.busy_s = 0.05
    assert rig.ask(CreateTopicsRequest(), 7).throttle_time_ms == 0
    rig.busy_s = 0.0001
    assert rig.ask(CreateTopicsRequest(), 7).throttle_time_ms == 20
    assert rig.seconds > 2_000


def test_the_longest_time_counts(rig: Rig) -> None:
    rig.limit(request_percentage=1.0, controller_mutation_rate=5.0)
    rig.busy_s, rig.mutation_ms = 1.0, 50
    assert rig.ask(CreateTopicsRequest(), 7).throttle_time_ms == 1_000
    rig.mutation_ms = 3_000
    assert rig.ask(CreateTopicsRequest(), 7).throttle_time_ms == 3_000
    assert rig.throttled == [1_000, 3_000]
    assert rig.quotas.request.throttled == 1
    assert rig.quotas.mutation.throttled_ms == 3_050


def test_a_throttle_without_a_field_in_the_answer_is_done_all_the_same(rig: Rig) -> None:
    rig.limit(request_percentage=1.0)
    rig.busy_s = 5.0
    rig.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert rig.throttled == [1_000]


def test_other_brokers_requests_are_free(rig: Rig) -> None:
    rig.limit(request_percentage=0.001)
    rig.busy_s = 5.0
    rig.ask(EnvelopeRequest(), 0)
    assert rig.throttled == []


def test_a_failure_of_the_work_is_passed_on(rig: Rig) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError

    async def main() -> None:
        usage = Usage(rig.quotas, rig.peer, "c", 1)
        with pytest.raises(LookupError):
            await Timed(fails(), usage)
        stuck = asyncio.ensure_future(
            _await(Timed(asyncio.get_running_loop().create_future(), usage))
        )
        await asyncio.sleep(0)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck

    asyncio.run(main())


async def _await(work: Awaitable[Any]) -> Any:
    return await work


def test_a_peer_without_a_connection_is_not_held() -> None:
    Peer("PLAINTEXT").throttle(5)
