"""A blocking connection that checks every response to the last byte."""

import socket
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec
from logfleet.wire.apis import api_of
from logfleet.wire.codec import decoder, encode_bytes
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, encode_request
from logfleet.wire.primitives import skip_tags
from logfleet.wire.schema import Field, load_table

TIMEOUT_S = 60.0
TRY_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # CreateTopics answers before the partition has a leader
}


class Disconnected(AssertionError):
    """The broker closed the connection instead of answering."""


class WireConnection:
    """A connection to one broker, until the block ends. timeout_s: of each wait.

    Raises TimeoutError.
    """

    def __init__(
        self, port: int, client_id: str | None = "wire", timeout_s: float = TIMEOUT_S
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._client_id = client_id
        self._sent = self._received = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def call(self, request: msgspec.Struct, version: int) -> Any:
        """Send a request and receive the response."""
        self.send(request, version)
        return self.receive(type(request), version)

    def send(
        self,
        request: msgspec.Struct,
        version: int,
        rewritten: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """Send a request; `receive` its response later. Responses come in the order of requests.

        rewritten: bytes of the same size to send instead of the encoded request.
        """
        self._sent += 1
        buffers = encode_request(request, version, self._sent, self._client_id)
        self.socket.sendall(rewritten(b"".join(buffers)))  # type: ignore[arg-type]

    def expect_nothing(self) -> None:
        """Declare that the next request in order gets no response."""
        self._received += 1

    def send_unanswered(self, request: msgspec.Struct, version: int) -> None:
        """Send a request that gets no response."""
        self.send(request, version)
        self._received += 1

    def receive(self, request: type[msgspec.Struct], version: int) -> Any:
        """Return the next response.

        Checks that it is decoded to the last byte and encodes to the same bytes. Raises
        Disconnected.
        """
        api = api_of(request)
        self._received += 1
        frame = self.frame()
        assert int.from_bytes(frame[:4], "big") == self._received, "out of order"
        start = skip_tags(frame, 4) if api.response_header_version(version) == 1 else 4
        answer, end = decoder(api.response, version)(frame, start)
        assert end == len(frame), f"{api.name} {version}: {len(frame) - end} bytes left over"
        assert encode_bytes(answer, version) == frame[start:], f"{api.name} {version}"
        return answer

    def frame(self) -> bytes:
        """Return the next frame without its size. Raises Disconnected."""
        return self._exactly(int.from_bytes(self._exactly(SIZE_BYTES), "big"))

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Disconnected(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)


def fit(request: msgspec.Struct, version: int) -> msgspec.Struct:
    """Reset every field that the version lacks to its default. Changes the request in place."""
    schema = load_table()[type(request).__name__]

    def prune(value: msgspec.Struct, fields: tuple[Field, ...]) -> None:
        for each in fields:
            name = each.python_name
            if not each.exists(version):
                setattr(value, name, getattr(type(value)(), name))
            elif each.struct_name is not None:
                held = getattr(value, name)
                for child in held if isinstance(held, list) else [held]:
                    if child is not None:
                        prune(child, schema.structs[each.struct_name])

    prune(request, schema.fields)
    return request


def error_codes(value: object) -> Iterator[ErrorCode]:
    """Return every error code in a response, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from error_codes(each)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name.endswith("error_code"):
                yield ErrorCode(getattr(value, name))
            else:
                yield from error_codes(getattr(value, name))
