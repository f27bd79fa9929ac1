import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.types import LeaderEpoch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

from broker_image.tests.unit.node.handlers.fetch_rig import append, fetch, request, rows_of, values


class Reader:
    """A consumer with a session: names what changed, gets what changed."""

    def __init__(self, host, version: int = 18) -> None:
        self.host = host
        self.version = version
        self.id = self.epoch = 0

    def ask(self, *rows: tuple[Any, ...], **more: Any) -> FetchResponse:
        """The answer."""
        answer = self.send(*rows, **more)
        assert isinstance(answer, FetchResponse)
        return answer

    def wait(self, *rows: tuple[Any, ...], **more: Any) -> "asyncio.Task[FetchResponse]":
        """The answer that is to come."""
        answer = self.send(*rows, max_wait_ms=100_000, **more)
        assert asyncio.iscoroutine(answer), "it should wait"
        return asyncio.ensure_future(answer)

    def send(
        self, *rows: tuple[Any, ...], forget: tuple[tuple[str, int], ...] = (), **more: Any
    ) -> FetchResponse | Awaitable[FetchResponse]:
        asked = request(*rows, session_id=self.id, session_epoch=self.epoch, **more)
        asked.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(
                topic=topic, topic_id=topic.encode().ljust(16, b"-"), partitions=[index]
            )
            for topic, index in forget
        ]
        self.epoch += 1
        answer: FetchResponse | Awaitable[FetchResponse]
        answer = fetch(self.host, asked, self.host.context(self.version))
        return answer

    def told(self, *rows: tuple[Any, ...], **more: Any) -> list[tuple[str, int, Any]]:
        """(topic, partition, values or error code) for each row; the answer comes at once."""
        return self.taken(self.ask(*rows, **more))

    def taken(self, answer: FetchResponse) -> list[tuple[str, int, Any]]:
        encode(answer, self.version)
        assert answer.error_code == ErrorCode.NONE
        self.id = answer.session_id
        return [
            (
                topic.topic or topic.topic_id.decode().rstrip("-"),
                row.partition_index,
                row.error_code or values(row),
            )
            for topic in answer.responses
            for row in topic.partitions
        ]


@pytest.fixture(params=[12, 18])
def reader(host, request) -> Reader:
    return Reader(host, request.param)


class TestSessions:
    def test_only_what_changed_is_named_and_reported(self, host, reader) -> None:
        one, two = host.host("t", 0), host.host("t", 1)
        append(one, b"a")
        assert reader.told(("t", 0, 0), ("t", 1, 0)) == [("t", 0, [b"a"]), ("t", 1, [])]
        assert reader.id == 100
        assert reader.told(("t", 0, 1)) == []
        append(two, b"b")
        assert reader.told() == [("t", 1, [b"b"])]
        assert reader.told() == [("t", 1, [b"b"])]  # it has not moved on
        assert reader.told(("t", 1, 1)) == []
        one.log.delete_records_before(1)
        assert reader.told() == [("t", 0, [])]
        assert reader.told(("t", 0, 0)) == [("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE)]
        assert reader.told(("t", 0, 1)) == [("t", 0, [])]
        assert reader.told(forget=(("t", 0),)) == []
        assert list(host.fetch_sessions._sessions[100].partitions) == [
            (b"t".ljust(16, b"-") if reader.version == 18 else "t", 1)
        ]

    def test_an_append_elsewhere_costs_no_read(self, host, reader, monkeypatch) -> None:
        partitions = [host.host("t", index) for index in range(20)]
        reader.told(*(("t", index, 0) for index in range(20)))
        reads: list[int] = []
        for partition in partitions:

            def read(*given, log_read=partition.log.read, index=partition.index, **more):
                reads.append(index)
                return log_read(*given, **more)

            monkeypatch.setattr(partition.log, "read", read)
        assert reader.told() == []
        assert reads == []
        append(partitions[7], b"a")
        assert reader.told() == [("t", 7, [b"a"])]
        assert reads == [7]

    def test_the_one_that_gave_records_comes_last_next_time(self, host, reader) -> None:
        for index in (0, 1, 2):
            append(host.host("t", index), bytes(100))
        limits = {"max_bytes": 1}
        # unknown ones come last from the beginning; the first answer moves nothing
        reader.told(("t", 9, 0), ("t", 0, 0), ("t", 1, 0), ("t", 2, 0), **limits)
        given = [[index for _, index, _ in reader.told(**limits)] for _ in range(4)]
        assert given == [[0, 9], [1, 9], [2, 9], [0, 9]]

    def test_a_session_survives_a_change_of_leadership(self, host, reader) -> None:
        partition = host.host("t", 0)
        append(partition, b"a")
        host.know_topic("t", {0: 2})
        assert reader.told(("t", 0, 1)) == [("t", 0, [])]
        host.partitions.remove(partition)
        for _ in range(2):
            assert reader.told() == [("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        partition = LeaderPartition("t", partition.topic_id, 0, partition.log, LeaderEpoch(9))
        host.partitions.add(partition)
        assert reader.told() == [("t", 0, [])]
        assert reader.told() == []
        append(partition, b"b")
        assert reader.told() == [("t", 0, [b"b"])]

    def test_an_unknown_partition_is_returned_until_it_exists(self, host, reader) -> None:
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID
            if reader.version == 18
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert reader.told(("t", 0, 0), max_wait_ms=100_000) == [("t", 0, unknown)]
        assert reader.told(max_wait_ms=100_000) == [("t", 0, unknown)]
        append(host.host("t", 0), b"a")
        assert reader.told() == [("t", 0, [b"a"])]

    def test_a_full_request_ends_the_old_session(self, host, reader) -> None:
        host.host("t", 0)
        reader.told(("t", 0, 0))
        reader.epoch = 0
        assert reader.told(("t", 0, 0)) == [("t", 0, [])]
        assert (reader.id, len(host.fetch_sessions)) == (101, 1)
        reader.epoch = -1
        assert reader.told(("t", 0, 0)) == [("t", 0, [])]
        assert (reader.id, len(host.fetch_sessions)) == (0, 0)
        assert len(host.partitions.get("t", 0).waiters) == 0

    def test_a_session_that_forgets_everything_ends(self, host, reader) -> None:
        host.host("t", 0)
        reader.told(("t", 0, 0))
        assert reader.told(forget=(("t", 0),)) == []
        assert reader.id == 0

    def test_without_room_every_request_is_full(self, host, reader) -> None:
        host.host("t", 0)
        for _ in range(2):
            Reader(host).told(("t", 0, 0))
        assert reader.told(("t", 0, 0)) == [("t", 0, [])]
        assert reader.id == 0

    def test_what_is_wrong_with_the_session_is_reported(self, host, reader) -> None:
        host.host("t", 0)
        reader.told(("t", 0, 0))
        reader.epoch = 5
        assert reader.ask().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        reader.epoch = 1
        reader.version = 30 - reader.version
        assert reader.ask().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        reader.id = 99
        assert reader.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_an_append_ends_the_wait(self, host, reader) -> None:
        async def main() -> None:
            one, two = host.host("t", 0), host.host("t", 1)
            append(one, b"a")
            reader.told(("t", 0, 1), ("t", 1, 0))
            pending = reader.wait(min_bytes=100)
            await asyncio.sleep(0)
            append(two, b"1")
            await asyncio.sleep(0)
            assert not pending.done()
            append(one, bytes(50))
            assert reader.taken(await pending) == [("t", 0, [bytes(50)]), ("t", 1, [b"1"])]
            assert host.fetch_sessions._sessions[100].parked is None
            assert reader.told(("t", 0, 2), ("t", 1, 1)) == []

        asyncio.run(main())

    def test_lost_leadership_ends_the_wait(self, host, reader) -> None:
        async def main() -> None:
            partition = host.host("t", 0)
            host.know_topic("t", {0: 2})
            reader.told(("t", 0, 0))
            pending = reader.wait()
            host.partitions.remove(partition)
            told = reader.taken(await pending)
            assert told == [("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]

        asyncio.run(main())

    def test_of_two_requests_at_once_the_later_goes_on(self, host, reader) -> None:
        async def main() -> None:
            partition = host.host("t", 0)
            reader.told(("t", 0, 0))
            first = reader.wait()
            second = reader.wait()
            answer = await first
            assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            assert answer.session_id == 100
            append(partition, b"a")
            assert reader.taken(await second) == [("t", 0, [b"a"])]

        asyncio.run(main())

    def test_a_request_that_waits_is_answered_when_its_session_ends(self, host, reader) -> None:
        async def main() -> None:
            partition = host.host("t", 0)
            reader.told(("t", 0, 0))
            pending = reader.wait()
            host.fetch_sessions.remove(100)
            assert reader.taken(await pending) == []
            assert len(partition.waiters) == 0

        asyncio.run(main())


class Throttle:
    """Stands for what a request uses of its client's quota: those named here are too much."""

    def __init__(self, *throttle_ms: int) -> None:
        self._throttle_ms = list(throttle_ms)

    def fetched(self, answer: FetchResponse) -> int:
        encode(answer, 18)
        return self._throttle_ms.pop(0)


def test_a_throttled_fetch_leaves_its_session_as_it_was(host, monkeypatch):
    """KIP-219: no records, and what it left out does not count as sent."""
    partition = host.host()
    append(partition, b"1")
    reader = Reader(host)
    context = host.context
    usage: Any = Throttle(7, 0, 9, 0)
    monkeypatch.setattr(
        host,
        "context",
        lambda version: msgspec.structs.replace(context(version), usage=usage),
    )
    refused = reader.ask(("topic", 0, 0))
    assert (refused.throttle_time_ms, refused.session_id, refused.responses) == (7, 0, [])
    reader.epoch = 0
    assert reader.told(("topic", 0, 0)) == [("topic", 0, [b"1"])]
    append(partition, b"2")
    throttled = reader.ask(("topic", 0, 1))
    assert (throttled.throttle_time_ms, throttled.session_id) == (9, reader.id)
    assert throttled.responses == []
    assert reader.told() == [("topic", 0, [b"2"])]


def test_a_throttled_fetch_that_was_overtaken_gets_that_error(host):
    host.host()
    reader = Reader(host)
    reader.told(("topic", 0, 0))
    usage: Any = Throttle(7)

    async def overtaken() -> FetchResponse:
        context = msgspec.structs.replace(host.context(18), usage=usage)
        asked = request(session_id=reader.id, session_epoch=1, max_wait_ms=100_000)
        waiting = fetch(host, asked, context)
        assert not isinstance(waiting, FetchResponse)
        reader.epoch = 2
        reader.ask()
        append(host.partitions.find("topic", 0), b"1")
        answer: FetchResponse = await waiting
        return answer

    answer = asyncio.run(overtaken())
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert answer.throttle_time_ms == 7


def sent_by(*answers: FetchResponse) -> int:
    return sum(len(row.records or b"") for answer in answers for row in rows_of(answer))


@pytest.mark.parametrize("ends", ["answered", "throttled", "overtaken"])
def test_only_what_is_answered_counts_as_sent_and_not_before(host, ends):
    """A counter that went down would be taken for that of a new process."""
    partition = host.host()
    reader = Reader(host)
    reader.told(("topic", 0, 0))
    append(partition, b"1")
    usage: Any = Throttle(7 if ends == "throttled" else 0)

    async def ask() -> None:
        context = msgspec.structs.replace(host.context(18), usage=usage)
        enough = partition.log.size + 1
        asked = request(
            session_id=reader.id, session_epoch=1, max_wait_ms=100_000, min_bytes=enough
        )
        waiting = fetch(host, asked, context)
        assert not isinstance(waiting, FetchResponse)
        assert partition.bytes_out == 0, "it waits for more"
        others = []
        if ends == "overtaken":
            reader.epoch = 2
            others.append(reader.ask())
        assert partition.bytes_out == sent_by(*others)
        append(partition, b"2")
        answer = await waiting
        assert (sent_by(answer) > 0) == (ends == "answered")
        assert partition.bytes_out == sent_by(answer, *others)

    asyncio.run(ask())
