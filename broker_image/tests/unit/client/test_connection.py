import asyncio
import select
import socket
import struct

import pytest
from logfleet.client import connection as connection_module
from logfleet.client.connection import Connection
from logfleet.client.errors import ConnectionLost, NotSupported, RequestTimedOut
from logfleet.io.host_names import HostNames
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import encode_request, encode_unsupported_api_versions
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
METADATA = API_BY_NAME["Metadata"]
METADATA_VERSION = METADATA.max_version


async def connect(broker: FakeBroker) -> Connection:
    return await Connection.connect("127.0.0.1", broker.port, "test")


async def test_versions_are_the_newest_that_both_sides_speak() -> None:
    async with FakeBroker().running() as broker:
        rows = [ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=9)]
        broker.answers[ApiVersionsRequest] = lambda _: ApiVersionsResponse(api_keys=rows)
        connection = await connect(broker)
        await connection.request(MetadataRequest(topics=[]), MetadataResponse)
        header, _ = broker.requests[-1]
        assert (header.api_version, header.client_id) == (9, "test")
        with pytest.raises(NotSupported, match="no version of DescribeCluster"):
            await connection.request(DescribeClusterRequest(), DescribeClusterResponse)


async def test_an_older_broker_is_asked_again_in_its_own_version() -> None:
    async with FakeBroker().running() as broker:

        def old(request: ApiVersionsRequest):
            if broker.requests[-1][0].api_version > 3:
                answer = encode_unsupported_api_versions(broker.requests[-1][0].correlation_id)
                # it says that it speaks 0 to 3
                return answer[:-2] + b"\0\x03"
            return broker.api_versions(request)

        broker.answers[ApiVersionsRequest] = old
        connection = await connect(broker)
        assert [header.api_version for header, _ in broker.requests] == [5, 3]
        assert connection.versions[3] == (0, 13)


async def test_a_broker_that_refuses_to_tell_its_versions_is_of_no_use() -> None:
    async with FakeBroker().running() as broker:
        refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        broker.answers[ApiVersionsRequest] = lambda _: refused
        with pytest.raises(NotSupported, match="INVALID_REQUEST"):
            await connect(broker)


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    async with FakeBroker({"a": 1, "b": 2}).running() as broker:
        connection = await connect(broker)
        names = ["a", "b"] * 50
        futures = [
            connection.submit(
                MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)]),
                MetadataResponse,
            )
            for name in names
        ]
        answers = [await future for future in futures]
        assert [answer.topics[0].name for answer in answers] == names


async def test_a_large_answer_arrives_whole() -> None:
    async with FakeBroker().running() as broker:
        records = bytes(range(256)) * 4096
        partition = FetchResponse.PartitionData(records=records)
        topic = FetchResponse.FetchableTopicResponse(partitions=[partition])
        broker.answers[FetchRequest] = lambda _: FetchResponse(responses=[topic])
        connection = await connect(broker)
        futures = [connection.submit(FetchRequest(), FetchResponse) for _ in range(3)]
        for future in futures:
            answer = await future
            assert answer.responses[0].partitions[0].records == records


async def test_a_lost_connection_fails_everything_that_waits() -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: broker.CLOSE
        connection = await connect(broker)
        first = connection.submit(MetadataRequest(topics=[]), MetadataResponse)
        second = connection.submit(MetadataRequest(topics=[]), MetadataResponse)
        for future in (first, second):
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await future
        with pytest.raises(ConnectionLost):
            connection.submit(MetadataRequest(topics=[]), MetadataResponse)


async def test_an_answer_that_does_not_come_gives_the_connection_up() -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: None
        connection = await connect(broker)
        slow = connection.submit(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=60_000)
        with pytest.raises(RequestTimedOut, match="no response to Metadata"):
            await connection.request(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=20)
        with pytest.raises(RequestTimedOut):
            await slow
        assert connection.lost is not None


async def test_a_deadline_that_was_met_is_forgotten() -> None:
    async with FakeBroker().running() as broker:
        connection = await connect(broker)
        await connection.request(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=1_000)
        connection._check_deadlines()
        assert connection.lost is None


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\x01x",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x08\0\0\x30\x39\0\0\0\0",
        b"\0\0\0\x05\0\0\0\x01\x01",
    ],
    ids=["http", "short", "negative", "other correlation id", "cut off"],
)
async def test_nonsense_ends_the_connection_with_a_reason(reply: bytes) -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: reply
        connection = await connect(broker)
        with pytest.raises(ConnectionLost):
            await connection.request(MetadataRequest(topics=[]), MetadataResponse)


async def test_nobody_listening_is_said_in_one_line() -> None:
    async with FakeBroker().running() as broker:
        port = broker.port
    with pytest.raises(ConnectionLost, match=rf"cannot connect to 127.0.0.1:{port}: Connection"):
        await Connection.connect("127.0.0.1", port, "test")


async def test_a_broker_is_found_at_its_last_address_while_no_name_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[list[str] | OSError] = [
        ["127.0.0.1"],
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ]

    def look_up(host: str) -> list[str]:
        assert host == "peer.invalid"
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(connection_module, "HOST_NAMES", HostNames(look_up))
    async with FakeBroker().running() as broker:
        for _ in range(2):
            connection = await Connection.connect("peer.invalid", broker.port, "test")
            assert str(connection) == f"peer.invalid:{broker.port}"
            connection.close()
    assert not answers


async def test_a_cancelled_request_does_not_disturb_the_next() -> None:
    async with FakeBroker({"a": 1}).running() as broker:
        connection = await connect(broker)
        waiting = asyncio.Event()

        async def late(request: MetadataRequest):
            await waiting.wait()
            return broker.metadata(request)

        broker.answers[MetadataRequest] = late
        first = connection.submit(MetadataRequest(topics=[]), MetadataResponse)
        first.cancel()
        waiting.set()
        answer = await connection.request(MetadataRequest(topics=None), MetadataResponse)
        assert [topic.name for topic in answer.topics] == ["a"]


async def test_a_field_that_the_broker_does_not_know_is_not_silently_dropped() -> None:
    async with FakeBroker().running() as broker:
        connection = await connect(broker)
        with pytest.raises(NotSupported, match="lacks"):
            connection.submit(
                MetadataRequest(include_topic_authorized_operations=True),
                MetadataResponse,
                version_max=5,
            )


async def test_a_client_is_still_for_as_long_as_an_answer_asks_it() -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: MetadataResponse(throttle_time_ms=200)
        connection = await connect(broker)
        loop = asyncio.get_running_loop()
        await connection.request(MetadataRequest(topics=[]), MetadataResponse)
        throttled = loop.time()
        # a shorter time that comes later does not end a longer one
        broker.answers[MetadataRequest] = lambda _: MetadataResponse(throttle_time_ms=1)
        await connection.submit(MetadataRequest(topics=[]), MetadataResponse)
        broker.answers[MetadataRequest] = broker.metadata
        await connection.request(MetadataRequest(topics=[]), MetadataResponse)
        assert loop.time() - throttled > 0.15


async def test_who_waits_out_a_throttle_hears_that_the_connection_is_lost() -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: MetadataResponse(throttle_time_ms=60_000)
        connection = await connect(broker)
        await connection.request(MetadataRequest(topics=[]), MetadataResponse)
        waiting = asyncio.ensure_future(
            connection.request(MetadataRequest(topics=[]), MetadataResponse)
        )
        assert await asyncio.wait([waiting], timeout=0.05) == (set(), {waiting})
        broker.disconnect()
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionLost):
                await waiting
        assert len(broker.of(MetadataRequest)) == 1


@pytest.mark.parametrize("host", ["foo..bar", "a" * 64 + ".example", "\udcff"])
async def test_what_is_no_name_of_a_host_is_said_in_one_line(host: str) -> None:
    with pytest.raises(ConnectionLost, match=f"cannot connect to {host}:9092: not a host name"):
        await Connection.connect(host, 9092, "test")


async def test_a_connection_that_is_given_up_while_it_is_made_is_closed() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        asked.set()
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server, asyncio.timeout(10):
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.ensure_future(Connection.connect("127.0.0.1", port, "test"))
        await asked.wait()
        connecting.cancel()
        await asyncio.wait([connecting])
        await closed.wait()


async def test_what_a_connection_that_broke_unseen_did_not_take_is_no_silent_loss() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection("127.0.0.1", port, "test"), "127.0.0.1", port
        )
        connection.versions = {API_BY_NAME["Produce"].key: (3, 11)}
        accepted, _ = listener.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()  # by a reset
    heard = select.poll()
    heard.register(transport.get_extra_info("socket").fileno(), select.POLLERR)
    assert heard.poll(10_000)  # by the kernel, and not yet by the loop
    with pytest.raises(ConnectionLost, match="broke"):
        connection.post(ProduceRequest(acks=0))


def metadata_frame(correlation_id: int) -> bytes:
    request = MetadataRequest(topics=[])
    return b"".join(encode_request(request, METADATA_VERSION, correlation_id, "test"))  # type: ignore[arg-type]


async def test_a_frame_that_the_caller_encodes_is_answered_by_a_frame() -> None:
    async with FakeBroker().running() as broker:
        connection = await connect(broker)
        first = connection.submit(MetadataRequest(topics=[]), MetadataResponse)
        frame = await connection.exchange(METADATA, METADATA_VERSION, metadata_frame)
        assert (await first).cluster_id == "fake"
        answer = connection.decode(METADATA, METADATA_VERSION, frame)
        assert isinstance(answer, MetadataResponse)
        assert answer.cluster_id == "fake"
        correlations = [header.correlation_id for header, _ in broker.requests]
        assert correlations == [0, 1, 2]


async def test_a_frame_that_is_no_answer_ends_the_connection_when_it_is_decoded() -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: b"\0\0\0\x05\0\0\0\x01\x01"
        connection = await connect(broker)
        frame = await connection.exchange(METADATA, METADATA_VERSION, metadata_frame)
        with pytest.raises(ConnectionLost):
            connection.decode(METADATA, METADATA_VERSION, frame)
        assert connection.lost is not None


async def test_a_frame_is_held_to_its_correlation_id_and_its_time() -> None:
    async with FakeBroker().running() as broker:
        broker.answers[MetadataRequest] = lambda _: b"\0\0\0\x05\0\0\x30\x39\0"
        connection = await connect(broker)
        with pytest.raises(ConnectionLost, match="another request than Metadata"):
            await connection.exchange(METADATA, METADATA_VERSION, metadata_frame)
        with pytest.raises(ConnectionLost):
            await connection.exchange(METADATA, METADATA_VERSION, metadata_frame)
        broker.answers[MetadataRequest] = lambda _: None
        connection = await connect(broker)
        with pytest.raises(RequestTimedOut, match="no response to Metadata"):
            await connection.exchange(METADATA, METADATA_VERSION, metadata_frame, timeout_ms=20)


async def test_a_frame_waits_for_as_long_as_answers_ask_us_to() -> None:
    async with FakeBroker().running() as broker:
        slow = MetadataResponse(throttle_time_ms=50, cluster_id="fake")
        broker.answers[MetadataRequest] = lambda _: slow
        connection = await connect(broker)
        frame = await connection.exchange(METADATA, METADATA_VERSION, metadata_frame)
        assert not connection.throttled_until
        connection.decode(METADATA, METADATA_VERSION, frame)
        until = connection.throttled_until
        assert until
        await connection.exchange(METADATA, METADATA_VERSION, metadata_frame)
        assert asyncio.get_running_loop().time() >= until - 0.001
