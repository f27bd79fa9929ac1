import asyncio
from typing import Any

import msgspec
import pytest
import structlog
from logfleet.io.clock import boot_s
from logfleet.net.connection import CloseConnection
from logfleet.net.peer import PARKED, Peer
from logfleet.node.dispatch import Dispatcher, Handlers, ParkedRequest, RequestContext
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.codec import decode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import decode_response, encode_request
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ProduceRequest,
    ProduceResponse,
)

from broker_image.tests.unit.node.peer_rig import FakeLink

BROKER = "the broker"
PEER = Peer("PLAINTEXT", "10.0.0.1", 4000)


def frame_of(request: msgspec.Struct, version: int, client_id: str | None = "c") -> memoryview:
    frame = b"".join(encode_request(request, version, 77, client_id))  # type: ignore[arg-type]
    return memoryview(frame)[4:]


def body_of(api: str, version: int, answer: object) -> Any:
    assert isinstance(answer, bytes)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    correlation_id, body = decode_response(API_BY_NAME[api], version, answer[4:])
    assert correlation_id == 77
    return body


def dispatcher(handlers: "Handlers[str]") -> Dispatcher[str]:
    return Dispatcher(BROKER, handlers)


def test_a_request_reaches_its_handler_and_the_answer_its_client() -> None:
    seen: list[tuple[object, ...]] = []

    def groups(
        broker: str, request: ListGroupsRequest, context: RequestContext
    ) -> ListGroupsResponse:
        seen.append((broker, request, context.api_version, context.client_id, context.listener))
        return ListGroupsResponse(throttle_time_ms=5)

    dispatch = dispatcher({ListGroupsRequest: groups})
    for version in (0, 3, 5):
        request = ListGroupsRequest(states_filter=["Stable"] if version == 5 else [])
        answer = dispatch(PEER, frame_of(request, version))
        body = body_of("ListGroups", version, answer)
        assert body.throttle_time_ms == (5 if version else 0)
        assert seen[-1] == (BROKER, request, version, "c", "PLAINTEXT")
    assert dispatch.stats["ListGroups"].requests == 3
    assert dispatch.stats["ListGroups"].at_once.total > 0
    assert dispatch.stats["ListGroups"].errors == {}


def test_a_handler_may_answer_later_or_not_at_all() -> None:
    async def later(
        broker: str, request: ListGroupsRequest, context: RequestContext
    ) -> ListGroupsResponse:
        await asyncio.sleep(0)
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def never(broker: str, request: ProduceRequest, context: RequestContext) -> None:
        return None

    async def main() -> None:
        dispatch = dispatcher({ListGroupsRequest: later, ProduceRequest: never})
        pending: Any = dispatch(PEER, frame_of(ListGroupsRequest(), 3))
        assert not isinstance(pending, bytes | list | None)
        assert body_of("ListGroups", 3, await pending).error_code == 14
        assert dispatch(PEER, frame_of(ProduceRequest(acks=0), 9)) is None
        stats = dispatch.stats["ListGroups"]
        assert (stats.requests, stats.at_once.count, stats.remote.count) == (1, 0, 1)
        assert stats.errors == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 1}
        assert dispatch.stats["Produce"].requests == 1

        peer = Peer("PLAINTEXT")
        peer.queued_since = boot_s() - 7
        await dispatch(peer, frame_of(ListGroupsRequest(), 3))  # type: ignore[misc]
        assert 7 <= stats.queue.total < 8
        assert stats.queue.count == 1

    asyncio.run(main())


class Waiting(ParkedRequest):
    """A handler whose request waits without a task. answer: what is answered then, or raised."""

    def __init__(self, answer: Any) -> None:
        self._made = answer

    def __call__(self, *_: object) -> ParkedRequest:
        return self

    def end(self) -> None:
        self.reply(self._answer)

    def _answer(self) -> Any:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


def parked(waiting: Waiting, lease: "HeldLease | None" = None) -> "tuple[Dispatcher[str], Any]":
    """A Produce request that waits, and its answer."""
    dispatch, peer = dispatcher({ProduceRequest: waiting}), Peer("PLAINTEXT")
    dispatch.lease = lease
    link = FakeLink(peer)
    given = dispatch(peer, frame_of(ProduceRequest(), 9))
    assert given is PARKED
    return dispatch, link.wait(given)


def test_a_request_may_wait_without_a_task() -> None:
    async def main() -> None:
        rows = [ProduceResponse.PartitionProduceResponse(error_code=ErrorCode.CORRUPT_MESSAGE)]
        topics = [ProduceResponse.TopicProduceResponse(partition_responses=rows)]
        waiting = Waiting(ProduceResponse(responses=topics, throttle_time_ms=5))
        dispatch, answer = parked(waiting)
        waiting.end()
        assert body_of("Produce", 9, await answer).throttle_time_ms == 5
        stats = dispatch.stats["Produce"]
        assert (stats.requests, stats.at_once.count, stats.remote.count) == (1, 0, 1)
        assert stats.errors == {ErrorCode.CORRUPT_MESSAGE: 1}
        assert stats.local.total > 0

        dispatch, answer = parked(waiting := Waiting(b"a whole answer"))
        waiting.end()
        assert await answer == b"a whole answer"
        assert dispatch.stats["Produce"].requests == 1

    asyncio.run(main())


def test_what_waits_without_a_task_ends_as_what_waits_with_one() -> None:
    async def main() -> None:
        for error, reason in ((KeyError("a bug"), "Produce failed"), (CloseConnection("no"), "no")):
            dispatch, answer = parked(waiting := Waiting(error))
            waiting.end()
            with pytest.raises(CloseConnection, match=reason):
                await answer
            assert dispatch.stats["Produce"].failures == isinstance(error, KeyError)

        unsent = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    partition_responses=[ProduceResponse.PartitionProduceResponse(error_code=2)]
                )
            ]
        )
        dispatch, answer = parked(waiting := Waiting(CloseConnection("acks=0", unsent)))
        waiting.end()
        with pytest.raises(CloseConnection, match="acks=0"):
            await answer
        assert (dispatch.stats["Produce"].requests, dispatch.stats["Produce"].errors) == (1, {2: 1})

        lease = HeldLease(60)
        dispatch, answer = parked(waiting := Waiting(ProduceResponse()), lease)
        lease.run_out()
        dispatch.lease = HeldLease(60)
        waiting.end()
        with pytest.raises(CloseConnection, match="lease"):
            await answer

    asyncio.run(main())


def test_large_requests_that_wait_take_bounded_memory_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logfleet.node.dispatch.WAITING_MEMORY_BYTES", 250_000)
    large = frame_of(ListGroupsRequest(states_filter=[""] * 100), 4)
    small = frame_of(ListGroupsRequest(), 4)

    async def main() -> None:
        peer = Peer("PLAINTEXT")
        FakeLink(peer)
        by_call = Waiting(ListGroupsResponse())
        counting = dispatcher({ListGroupsRequest: by_call})
        counting(peer, large)
        assert counting.waiting_memory > 60_000
        by_call.end()
        assert counting.waiting_memory == 0

        may_end = asyncio.Event()

        async def later(*_: object) -> ListGroupsResponse:
            await may_end.wait()
            return ListGroupsResponse()

        dispatch = dispatcher({ListGroupsRequest: later})
        waiting: list[Any] = [dispatch(PEER, large), dispatch(PEER, large)]
        with pytest.raises(CloseConnection, match="requests that wait take too much memory"):
            dispatch(PEER, large)
        waiting.append(dispatch(PEER, small))
        assert 130_000 < dispatch.waiting_memory < 250_000
        may_end.set()
        for each in waiting:
            body_of("ListGroups", 4, await each)
        assert dispatch.waiting_memory == 0
        body_of("ListGroups", 4, await dispatch(PEER, large))  # type: ignore[misc]

    asyncio.run(main())


@pytest.mark.parametrize(
    "frame, reason",
    [
        (b"", "request header"),
        (b"\0\x12\0\0\0\0\0", "request header"),
        (b"\x0f\xff\0\0\0\0\0\1\xff\xff", "unknown API key 4095"),
        (b"\0\1\0\x0c\0\0\0\1\xff\xff\0", "API 1 is not served"),
        (b"\0\x10\0\x06\0\0\0\1\xff\xff\0", "ListGroups version 6 is not served"),
        (b"\0\x10\xff\xff\0\0\0\1\xff\xff\0", "ListGroups version -1 is not served"),
        (b"\0\x10\0\x04\0\0\0\1\xff\xff\0\x7f\1", "ListGroupsRequest"),
    ],
)
def test_what_is_no_served_request_closes_the_connection(frame: bytes, reason: str) -> None:
    dispatch = dispatcher({ListGroupsRequest: lambda *_: ListGroupsResponse()})
    with pytest.raises(CloseConnection, match=reason):
        dispatch(PEER, memoryview(frame))


def test_produce_versions_that_are_advertised_but_not_served_close_the_connection() -> None:
    dispatch = dispatcher({ProduceRequest: lambda *_: ProduceResponse()})
    with pytest.raises(CloseConnection, match="Produce version 2 is not served"):
        dispatch(PEER, memoryview(b"\0\0\0\2\0\0\0\1\xff\xff\0\0\0\0\0\0\0\0\0\0"))


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    dispatch = dispatcher({ApiVersionsRequest: lambda *_: ApiVersionsResponse()})
    answer = dispatch(PEER, memoryview(b"\0\x12\0\x63\0\0\0\x4d\xff\xff\0\1\2\3"))
    assert isinstance(answer, bytes)
    body, end = decode(ApiVersionsResponse, 0, memoryview(answer), 8)
    assert end == len(answer)
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION
    (row,) = body.api_keys
    assert (row.api_key, row.min_version, row.max_version) == (18, 0, 5)


def test_a_bug_in_a_handler_closes_the_connection_and_is_counted() -> None:
    async def fails_later(
        broker: str, request: ProduceRequest, context: RequestContext
    ) -> ProduceResponse:
        raise KeyError("a bug")

    def fails(broker: str, request: ListGroupsRequest, context: RequestContext) -> None:
        raise KeyError("another bug")

    async def main() -> None:
        dispatch = dispatcher({ListGroupsRequest: fails, ProduceRequest: fails_later})
        with pytest.raises(CloseConnection, match="ListGroups failed"):
            dispatch(PEER, frame_of(ListGroupsRequest(), 3))
        pending: Any = dispatch(PEER, frame_of(ProduceRequest(), 9))
        assert not isinstance(pending, bytes | list | None)
        with pytest.raises(CloseConnection, match="Produce failed"):
            await pending
        assert [stats.failures for stats in dispatch.stats.values()] == [1, 1]

    asyncio.run(main())


def test_a_bug_that_repeats_is_logged_with_one_traceback() -> None:
    def fails(broker: str, request: ListGroupsRequest, context: RequestContext) -> None:
        raise KeyError("a bug")

    dispatch = dispatcher({ListGroupsRequest: fails})
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(CloseConnection, match="ListGroups failed"):
                dispatch(PEER, frame_of(ListGroupsRequest(), 3))
    assert [(line["event"], "exc_info" in line) for line in lines] == [
        ("request_failed", True),
        ("request_failed_again", False),
        ("request_failed_again", False),
    ]


def test_a_handler_may_close_the_connection_itself() -> None:
    def closes(broker: str, request: ProduceRequest, context: RequestContext) -> None:
        raise CloseConnection("acks=0 failed")

    dispatch = dispatcher({ProduceRequest: closes})
    with pytest.raises(CloseConnection, match="acks=0 failed"):
        dispatch(PEER, frame_of(ProduceRequest(), 9))
    assert dispatch.stats["Produce"].failures == 0


def test_an_answer_of_the_wrong_kind_is_a_bug() -> None:
    async def wrong(
        broker: str, request: ListGroupsRequest, context: RequestContext
    ) -> ProduceResponse:
        return ProduceResponse()

    async def main() -> None:
        pending: Any = dispatcher({ListGroupsRequest: wrong})(
            PEER, frame_of(ListGroupsRequest(), 3)
        )
        assert not isinstance(pending, bytes | list | None)
        with pytest.raises(CloseConnection, match="ListGroups failed"):
            await pending

    asyncio.run(main())


@pytest.mark.parametrize("is_later", [False, True])
def test_a_request_that_ends_its_connection_is_counted_with_its_errors(*, is_later: bool) -> None:
    """As Kafka does (KafkaApis.closeConnection)."""
    rows = [
        ProduceResponse.PartitionProduceResponse(error_code=code)
        for code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE)
    ]
    unsent = ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(partition_responses=rows)]
    )

    def at_once(*_: object) -> None:
        raise CloseConnection("acks=0 failed", unsent)

    async def later(*_: object) -> None:
        at_once()

    dispatch = dispatcher({ProduceRequest: later if is_later else at_once})

    async def main() -> None:
        await dispatch(PEER, frame_of(ProduceRequest(acks=0), 9))  # type: ignore[misc]

    with pytest.raises(CloseConnection, match="acks=0 failed"):
        asyncio.run(main())
    stats = dispatch.stats["Produce"]
    assert stats.requests == 1
    assert stats.failures == 0
    assert stats.errors == {
        ErrorCode.NOT_LEADER_OR_FOLLOWER: 1,
        ErrorCode.CORRUPT_MESSAGE: 1,
    }


class HeldLease:
    """One that was granted a minute ago at most. until_s: its deadline, seconds from now."""

    id = 1
    ttl_s = 60

    def __init__(self, until_s: float) -> None:
        self.deadline_s = boot_s() + until_s

    async def lost(self) -> None: ...

    async def revoke(self) -> None: ...

    def run_out(self) -> None:
        self.deadline_s = boot_s()


@pytest.mark.parametrize("is_later", [False, True])
def test_what_is_done_while_the_lease_runs_out_is_not_acknowledged(*, is_later: bool) -> None:
    """The process was stopped before the append or before the answer: another may lead by then."""
    lease = HeldLease(60)

    def at_once(*_: object) -> ProduceResponse:
        lease.run_out()
        return ProduceResponse()

    async def later(*_: object) -> ProduceResponse:
        return at_once()

    async def main() -> None:
        dispatch = dispatcher({ProduceRequest: later if is_later else at_once})
        dispatch.lease = lease
        with pytest.raises(CloseConnection, match="lease"):
            await dispatch(PEER, frame_of(ProduceRequest(), 9))  # type: ignore[misc]
        assert dispatch.stats["Produce"].failures == 0

    asyncio.run(main())


def test_a_lease_runs_out_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only CLOCK_BOOTTIME goes on then; the broker has had no step of its loop to notice."""

    def suspended(*_: object) -> ProduceResponse:
        monkeypatch.setattr("logfleet.node.dispatch.boot_s", lambda: boot_s() + 600)
        return ProduceResponse()

    dispatch = dispatcher({ProduceRequest: suspended})
    dispatch.lease = HeldLease(60)
    with pytest.raises(CloseConnection, match="lease"):
        dispatch(PEER, frame_of(ProduceRequest(), 9))


def test_what_came_in_under_a_lease_is_not_acknowledged_under_the_next() -> None:
    """What was decided on before the loop saw the loss may be sent only after that."""

    async def main() -> None:
        decided = asyncio.get_running_loop().create_future()
        dispatch = dispatcher({ProduceRequest: lambda *_: decided})
        dispatch.lease = former = HeldLease(60)
        waiting: Any = dispatch(PEER, frame_of(ProduceRequest(), 9))
        former.run_out()
        dispatch.lease = HeldLease(60)
        decided.set_result(ProduceResponse())
        with pytest.raises(CloseConnection, match="lease"):
            await waiting

    asyncio.run(main())


def test_what_the_store_has_decided_is_reported_though_the_lease_has_run_out() -> None:
    async def later(*_: object) -> ListGroupsResponse:
        return ListGroupsResponse()

    async def main() -> None:
        handlers: Handlers[str] = {ListGroupsRequest: later}
        dispatch = Dispatcher(BROKER, handlers, {ListGroupsRequest})
        dispatch.lease = HeldLease(0)
        answer: Any = dispatch(PEER, frame_of(ListGroupsRequest(), 3))
        body_of("ListGroups", 3, await answer)

    asyncio.run(main())
