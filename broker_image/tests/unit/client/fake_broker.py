"""A broker of a few lines on loopback: answers what a test tells it to, on the real codec."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from logfleet.wire.apis import API_BY_KEY, api_of
from logfleet.wire.frame import (
    RequestHeader,
    decode_request,
    decode_request_header,
    encode_response,
)
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)

Reply: TypeAlias = "msgspec.Struct | bytes | Awaitable[msgspec.Struct | bytes | None] | None"
TOPIC_ID = b"0123456789abcdef"


class FakeBroker:
    """answers: request class -> function of the request; what it returns is sent.

    bytes are sent as they are, None sends nothing, `CLOSE` closes the connection. requests: all that came, with headers.
    topics: name -> number of partitions, for the Metadata answer that is there from the start, none of which moves; topic_id: of all of them.
    leaderless: partitions by topic and index that nobody leads; all others are this broker's.
    """

    CLOSE = b"close"

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.topics = topics or {}
        self.topic_id = TOPIC_ID
        self.leaderless: set[tuple[str, int]] = set()
        self.answers: dict[type, Callable[[Any], Reply]] = {
            ApiVersionsRequest: self.api_versions,
            FindCoordinatorRequest: self.find_coordinator,
            MetadataRequest: self.metadata,
            ListPartitionReassignmentsRequest: lambda _: ListPartitionReassignmentsResponse(),
        }
        self.requests: list[tuple[RequestHeader, msgspec.Struct]] = []
        self.port = 0
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of(self, kind: type) -> list[Any]:
        return [request for _, request in self.requests if isinstance(request, kind)]

    def api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        del request
        rows = [
            ApiVersionsResponse.ApiVersion(
                api_key=api.key, min_version=api.min_version, max_version=api.max_version
            )
            for api in API_BY_KEY.values()
        ]
        return ApiVersionsResponse(api_keys=rows)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics)
        if request.topics is not None:
            names = [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
            ],
            cluster_id="fake",
            controller_id=1,
            topics=[self.topic(name) for name in names],
        )

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """This broker is every group's."""
        rows = [
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=1, host="127.0.0.1", port=self.port
            )
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponse.MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponse.MetadataResponsePartition(
                partition_index=index,
                leader_id=-1 if (name, index) in self.leaderless else 1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for index in range(self.topics[name])
        ]
        return MetadataResponse.MetadataResponseTopic(
            name=name, topic_id=self.topic_id, partitions=partitions
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, position = decode_request_header(frame)
                request = decode_request(header, frame, position)
                self.requests.append((header, request))
                reply = self.answers[type(request)](request)
                if isinstance(reply, Awaitable):
                    reply = await reply
                if reply is self.CLOSE:
                    break
                if isinstance(reply, bytes):
                    writer.write(reply)
                elif reply is not None:
                    api = api_of(type(request))
                    buffers = encode_response(api, header.api_version, header.correlation_id, reply)
                    writer.write(b"".join(buffers))  # type: ignore[arg-type]
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the peer is gone, or the test is over
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeBroker"]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.disconnect()
            await asyncio.gather(*self._serving)

    def disconnect(self) -> None:
        """Close all connections."""
        for task in self._serving:
            task.cancel()
