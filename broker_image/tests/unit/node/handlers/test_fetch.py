import asyncio
import errno
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.types import BrokerEpoch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

from broker_image.tests.unit.node.handlers.fetch_rig import (
    append,
    fetch,
    only_row,
    request,
    rows_of,
    values,
)


def ask(host, asked: FetchRequest, version: int = 12) -> FetchResponse:
    answer = fetch(host, asked, host.context(version))
    assert isinstance(answer, FetchResponse)
    encode(answer, version)  # nothing is set that this version lacks
    return answer


@pytest.mark.parametrize("version", range(4, 19))
def test_records_and_ends_are_returned(host, version) -> None:
    partition = host.host()
    append(partition, b"a", b"b")
    row = only_row(ask(host, request(("topic", 0, 0)), version))
    assert row.error_code == 0
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (2, 2, 0)
    assert values(row) == [b"a", b"b"]
    assert row.aborted_transactions is None
    assert row.preferred_read_replica == -1


def test_what_is_not_committed_is_not_returned(host) -> None:
    """flush.messages delays the commit; a reader beyond it gets no error. Kafka: FetchIsolation."""
    partition = host.host_held()
    append(partition, b"a")
    append(partition, b"b")
    partition.ends.flushed(1)
    row = only_row(ask(host, request(("topic", 0, 0))))
    assert values(row) == [b"a"]
    assert (row.high_watermark, row.last_stable_offset) == (1, 1)
    for offset in (1, 2):
        row = only_row(ask(host, request(("topic", 0, offset))))
        assert (row.error_code, values(row)) == (0, [])
    partition.ends.flushed(2)
    assert values(only_row(ask(host, request(("topic", 0, 1))))) == [b"b"]


def test_a_reader_of_committed_records_sees_no_aborted_transactions(host) -> None:
    append(host.host(), b"a")
    row = only_row(ask(host, request(("topic", 0, 0), isolation_level=1)))
    assert row.aborted_transactions == []
    assert values(row) == [b"a"]


def test_the_first_batch_comes_even_if_it_is_too_large(host) -> None:
    one, two = host.host("a"), host.host("b")
    append(one, bytes(1000))
    append(two, bytes(10))
    answer = ask(host, request(("a", 0, 0), ("b", 0, 0), max_bytes=10))
    assert [len(values(row)) for row in rows_of(answer)] == [1, 0]
    answer = ask(host, request(("a", 0, 0, {"partition_max_bytes": 1}), ("b", 0, 0)))
    assert [len(values(row)) for row in rows_of(answer)] == [1, 1]
    answer = ask(host, request(("a", 0, 0), ("b", 0, 0, {"partition_max_bytes": 1})))
    assert [len(values(row)) for row in rows_of(answer)] == [1, 0]


def test_an_empty_partition_does_not_use_up_the_first_batchs_right(host) -> None:
    host.host("a")
    append(host.host("b"), bytes(1000))
    answer = ask(host, request(("a", 0, 0), ("b", 0, 0), max_bytes=10))
    assert [len(values(row)) for row in rows_of(answer)] == [0, 1]


def test_the_brokers_own_limit_holds(host) -> None:
    partition = host.host()
    append(partition, bytes(100))
    append(partition, bytes(100))
    host.config.fetch_max_bytes = 250
    row = only_row(ask(host, request(("topic", 0, 0))))
    assert len(row.records) < 250


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"fetch_offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"current_leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"last_fetched_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_rows_in_error_carry_nothing_else(host, fields, error) -> None:
    append(host.host(), b"a", b"b")
    asked = request(("topic", 0, 0), max_wait_ms=100_000)
    for name, value in fields.items():
        setattr(asked.topics[0].partitions[0], name, value)
    row = only_row(ask(host, asked))
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (error, -1, -1)
    assert row.records == b""


def test_the_leader_epoch_may_be_right_or_left_out(host) -> None:
    append(host.host(), b"a")
    for epoch in (5, -1, -7):
        fields = {"current_leader_epoch": epoch, "last_fetched_epoch": min(epoch, -1)}
        row = only_row(ask(host, request(("topic", 0, 0, fields))))
        assert values(row) == [b"a"]


def test_a_reader_whose_log_diverged_learns_where(host) -> None:
    partition = host.host(leader_epoch=2)
    append(partition, b"a", b"b")
    partition.log.start_epoch(5)
    partition.leader_epoch = 5
    append(partition, b"c")
    row = only_row(
        ask(host, request(("topic", 0, 3, {"last_fetched_epoch": 2}), max_wait_ms=100_000))
    )
    assert (row.error_code, row.records) == (0, b"")
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (2, 2)
    row = only_row(ask(host, request(("topic", 0, 2, {"last_fetched_epoch": 2}))))
    assert row.diverging_epoch is None
    assert values(row) == [b"c"]
    row = only_row(ask(host, request(("topic", 0, 2, {"last_fetched_epoch": 4}))))
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (2, 2)


@pytest.mark.parametrize("version", [12, 13, 16])
def test_the_leader_is_returned_if_this_broker_does_not_lead(host, version) -> None:
    host.know_topic("topic", {0: 2})
    host.know_broker(2, "two.example", 9093)
    answer = ask(host, request(("topic", 0, 0), ("topic", 1, 0), ("none", 0, 0)), version)
    rows = rows_of(answer)
    no_partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # unknown ones come last, unknown ids first
    unknown = [ErrorCode.UNKNOWN_TOPIC_ID, no_partition] if version >= 13 else [no_partition] * 2
    assert [row.error_code for row in rows] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, *unknown]
    if version >= 16:
        assert (rows[0].current_leader.leader_id, rows[0].current_leader.leader_epoch) == (2, 9)
        assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, 9093)]
    else:
        assert rows[0].current_leader is None
        assert answer.node_endpoints == []


def test_a_missing_leader_is_returned_with_the_epoch(host) -> None:
    host.know_topic("topic", {0: -1})
    (row,) = rows_of(ask(host, request(("topic", 0, 0)), 18))
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (-1, 9)


def test_followers_learn_the_leader_and_not_its_address(host) -> None:
    """They know the brokers by their own image (KafkaApis.handleFetchRequest)."""
    host.know_topic("topic", {0: 2})
    host.know_broker(2, "two.example", 9093)
    state = FetchRequest.ReplicaState(replica_id=3, replica_epoch=BrokerEpoch(1))
    answer = ask(host, request(("topic", 0, 0), replica_state=state), 18)
    assert rows_of(answer)[0].current_leader.leader_id == 2
    assert answer.node_endpoints == []


def test_followers_have_no_business_here(host) -> None:
    append(host.host(), b"a")
    row = only_row(ask(host, request(("topic", 0, 0), replica_id=2), 12))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    state = FetchRequest.ReplicaState(replica_id=2)
    row = only_row(ask(host, request(("topic", 0, 0), replica_state=state), 17))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_failing_disk_is_reported_to_the_client_and_to_the_broker(host, monkeypatch) -> None:
    partition = host.host()
    failure = OSError(errno.EIO, "bad sector")

    def failing(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(partition.log, "read", failing)
    row = only_row(ask(host, request(("topic", 0, 0))))
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert host.failed == [(partition, failure)]


def waiting(host, asked: FetchRequest, version: int = 12) -> tuple[Any, asyncio.Task[Any]]:
    context = host.context(version)
    pending = fetch(host, asked, context)
    assert asyncio.iscoroutine(pending), "it should wait"
    return context, asyncio.ensure_future(pending)


class TestWaiting:
    def test_an_append_ends_the_wait(self, host) -> None:
        async def main() -> None:
            partition = host.host()
            context, pending = waiting(host, request(("topic", 0, 0), max_wait_ms=100_000))
            await asyncio.sleep(0)
            assert context.peer.on_leave is not None
            append(partition, b"a")
            assert values(only_row(await pending)) == [b"a"]
            assert len(partition.waiters) == 0
            assert context.peer.on_leave is None
            assert host.timers._slots == {} or not any(host.timers._slots.values())

        asyncio.run(main())

    def test_appends_count_towards_min_bytes(self, host) -> None:
        async def main() -> None:
            one, two = host.host("a"), host.host("b")
            append(one, b"1")
            asked = request(("a", 0, 0), ("b", 0, 0), max_wait_ms=100_000, min_bytes=200)
            _, pending = waiting(host, asked)
            await asyncio.sleep(0)
            append(two, b"2")
            await asyncio.sleep(0)
            assert not pending.done()
            append(one, b"3")
            answer = await pending
            assert [values(row) for row in rows_of(answer)] == [[b"1"], [b"2"]]
            assert sum(len(row.records) for row in rows_of(answer)) >= 200

        asyncio.run(main())

    def test_the_time_limit_ends_the_wait(self, host) -> None:
        async def main() -> None:
            host.host()
            _, pending = waiting(host, request(("topic", 0, 0), max_wait_ms=20))
            row = only_row(await pending)
            assert (row.error_code, row.records, row.high_watermark) == (0, b"", 0)

        asyncio.run(main())

    def test_a_leaving_client_ends_the_wait(self, host) -> None:
        async def main() -> None:
            host.host()
            context, pending = waiting(host, request(("topic", 0, 0), max_wait_ms=100_000))
            await asyncio.sleep(0)
            context.peer.on_leave()
            context.peer.on_leave()
            assert only_row(await pending).records == b""

        asyncio.run(main())

    def test_lost_leadership_ends_the_wait(self, host) -> None:
        async def main() -> None:
            partition = host.host()
            host.know_topic("topic", {0: 2})
            _, pending = waiting(host, request(("topic", 0, 0), max_wait_ms=100_000))
            await asyncio.sleep(0)
            host.partitions.remove(partition)
            row = only_row(await pending)
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        asyncio.run(main())

    def test_nothing_is_waited_for_without_need(self, host) -> None:
        append(host.host(), b"a")
        ask(host, request(("topic", 0, 1), max_wait_ms=0))
        ask(host, request(max_wait_ms=100_000))
        ask(host, request(("topic", 0, 1), max_wait_ms=100_000, min_bytes=0))
        ask(host, request(("topic", 9, 0), ("none", 0, 0), max_wait_ms=100_000))
        host.know_topic("elsewhere", {0: 2})
        ask(host, request(("topic", 0, 1), ("elsewhere", 0, 0), max_wait_ms=100_000))

    def test_who_is_far_behind_does_not_wait_for_what_the_limits_hold_back(self, host) -> None:
        """Whole batches that fit are a little less than a limit of the size of min_bytes."""
        log_config = LogConfig(segment_bytes=1000, index_interval_bytes=0)
        for topic in ("a", "b"):
            partition = host.host(topic, config=log_config)
            for _ in range(10):
                append(partition, bytes(200))
        limits: list[dict[str, int]] = [{"partition_max_bytes": 500}, {}]
        for limit in limits:
            asked = request(
                ("a", 0, 0, limit), max_wait_ms=100_000, min_bytes=500 if limit else 10_000
            )
            (row,) = rows_of(ask(host, asked))
            assert 0 < len(row.records) < asked.min_bytes
        asked = request(
            ("a", 0, 0), ("b", 0, 0), max_wait_ms=100_000, min_bytes=5_000, max_bytes=600
        )
        assert sum(len(row.records) for row in rows_of(ask(host, asked))) < 600

    def test_who_has_all_there_is_waits_whatever_the_limits(self, host) -> None:
        async def main() -> None:
            partition = host.host(config=LogConfig(segment_bytes=1000))
            for _ in range(10):
                append(partition, bytes(200))
            end = partition.high_watermark
            asked = request(
                ("topic", 0, end - 1, {"partition_max_bytes": 500}),
                max_wait_ms=100_000,
                min_bytes=500,
            )
            _, pending = waiting(host, asked)
            append(partition, bytes(200))
            await pending

        asyncio.run(main())

    def test_what_nobody_knows_does_not_end_the_wait_for_the_rest(self, host) -> None:
        async def main() -> None:
            partition = host.host()
            _, pending = waiting(
                host, request(("topic", 9, 0), ("topic", 0, 0), max_wait_ms=100_000)
            )
            append(partition, b"a")
            answer = await pending
            assert [row.partition_index for row in rows_of(answer)] == [0, 9]
            assert values(rows_of(answer)[0]) == [b"a"]

        asyncio.run(main())

    def test_what_comes_before_the_wait_has_begun_ends_it(self, host) -> None:
        """Another connection's append in the same turn of the loop."""

        async def main() -> None:
            partition = host.host()
            pending = fetch(host, request(("topic", 0, 0), max_wait_ms=100_000), host.context(12))
            assert not isinstance(pending, FetchResponse)
            append(partition, b"a")
            assert values(only_row(await pending)) == [b"a"]

        asyncio.run(main())
