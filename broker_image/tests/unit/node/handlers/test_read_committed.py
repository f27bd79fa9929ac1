"""Fetch with isolation level 1, where a log's last stable offset is below its high watermark."""

import asyncio
from typing import Any

import pytest
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.batch import iterate_headers
from logfleet.records.record import read_records
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.node.handlers.fetch_rig import (
    append,
    fetch,
    only_row,
    request,
)
from broker_image.tests.unit.node.handlers.test_fetch_sessions import Reader


class Transaction:
    """One that began at `first_offset`, and ends when its end is committed."""

    def __init__(self, monkeypatch, log: Any, first_offset: int) -> None:
        self.first_offset = first_offset
        self.marker_offset = 1 << 62
        monkeypatch.setattr(log, "last_stable_offset", self._last_stable_offset)

    def _last_stable_offset(self, high_watermark: int) -> int:
        is_open = high_watermark <= self.marker_offset
        return min(high_watermark, self.first_offset) if is_open else high_watermark


def values(row: Any) -> list[bytes | None]:
    """Of all batches."""
    if isinstance(row.records, bytes):
        return []
    data = row.records.read()
    return [
        record.value
        for position, _ in iterate_headers(data)
        for record in read_records(memoryview(data)[position:])
    ]


def ask(host, offset: int, **more: Any) -> Any:
    asked = request(("topic", 0, offset), isolation_level=1, **more)
    return fetch(host, asked, host.context(12))


def wait(host, offset: int, **more: Any) -> "asyncio.Task[Any]":
    pending = ask(host, offset, max_wait_ms=100_000, **more)
    assert asyncio.iscoroutine(pending), "it should wait"
    return asyncio.ensure_future(pending)


def test_a_reader_of_committed_transactions_gets_nothing_beyond_the_last_stable_offset(
    host, monkeypatch
) -> None:
    partition = host.host()
    for value in (b"a", b"b", b"c"):
        append(partition, value)
    Transaction(monkeypatch, partition.log, 1)
    row = only_row(ask(host, 0))
    assert (values(row), row.aborted_transactions) == ([b"a"], [])
    assert (row.high_watermark, row.last_stable_offset) == (3, 1)
    for offset in (1, 2, 3):
        row = only_row(ask(host, offset))
        assert (row.error_code, values(row), row.aborted_transactions) == (0, [], [])
    row = only_row(fetch(host, request(("topic", 0, 0)), host.context(12)))
    assert (values(row), row.aborted_transactions) == ([b"a", b"b", b"c"], None)
    assert row.last_stable_offset == 1, "it is reported to everybody"


def test_a_follower_serves_up_to_its_own_last_stable_offset(host, monkeypatch) -> None:
    host.know_topic("topic", {0: 2})
    former = host.host()
    for value in (b"a", b"b", b"c"):
        append(former, value)
    host.partitions.remove(former)
    follower = FollowerPartition(Replica.of(former), 2, LeaderEpoch(9))
    host.partitions.add(follower)
    Transaction(monkeypatch, follower.log, 2).marker_offset = 3
    row = only_row(ask(host, 0))
    assert (row.high_watermark, row.last_stable_offset, values(row)) == (3, 2, [b"a", b"b"])


class TestWaiting:
    def test_what_is_not_stable_does_not_end_the_wait(self, host, monkeypatch) -> None:
        """1,000 parked readers, and one open transaction."""

        async def main() -> None:
            partition = host.host()
            append(partition, b"a")
            transaction = Transaction(monkeypatch, partition.log, 1)
            pending = [wait(host, 1) for _ in range(1_000)]
            await asyncio.sleep(0)
            woken: list[int] = []
            monkeypatch.setattr(
                "logfleet.node.handlers.fetch_calls.FetchCall.end", lambda _: woken.append(1)
            )
            for _ in range(10):
                append(partition, b"b")
            assert woken == []
            monkeypatch.undo()
            monkeypatch.setattr(partition.log, "last_stable_offset", lambda end: end)
            transaction.marker_offset = partition.log_end_offset
            append(partition, b"marker")
            rows = [only_row(answer) for answer in await asyncio.gather(*pending)]
            assert {len(values(row)) for row in rows} == {11}
            assert len(partition.waiters) == 0

        asyncio.run(main())

    def test_bytes_that_became_stable_count_towards_min_bytes(self, host, monkeypatch) -> None:
        async def main() -> None:
            partition = host.host()
            transaction = Transaction(monkeypatch, partition.log, 0)
            size = _size_of(partition)
            pending = wait(host, 0, min_bytes=3 * size + 1)
            await asyncio.sleep(0)
            transaction.marker_offset = 2
            append(partition, b"b")
            append(partition, b"m")  # three batches are stable now
            await asyncio.sleep(0)
            assert not pending.done()
            append(partition, b"c")  # no transaction is open any more
            assert values(only_row(await pending)) == [b"a", b"b", b"m", b"c"]

        asyncio.run(main())

    def test_plain_records_before_a_transaction_are_stable_at_once(self, host, monkeypatch) -> None:
        async def main() -> None:
            partition = host.host()
            Transaction(monkeypatch, partition.log, 1)
            pending = wait(host, 0)
            await asyncio.sleep(0)
            append(partition, b"a")
            assert values(only_row(await pending)) == [b"a"]

        asyncio.run(main())

    def test_a_disk_failure_while_bytes_are_counted_is_met_by_the_reader(
        self, host, monkeypatch
    ) -> None:
        async def main() -> None:
            partition = host.host()
            append(partition, b"a")
            transaction = Transaction(monkeypatch, partition.log, 0)
            pending = wait(host, 0)
            await asyncio.sleep(0)
            failure = OSError("bad sector")

            def failing(*_: object, **__: object) -> None:
                raise failure

            monkeypatch.setattr(partition.log, "read", failing)
            transaction.marker_offset = 1
            append(partition, b"m")
            row = only_row(await pending)
            assert row.error_code == 56
            assert host.failed == [(partition, failure)]

        asyncio.run(main())


class TestSessions:
    def test_a_row_is_told_when_its_records_are_stable(self, host, monkeypatch) -> None:
        async def main() -> None:
            partition = host.host()
            reader = Reader(host)
            transaction = Transaction(monkeypatch, partition.log, 0)
            assert reader.told(("topic", 0, 0), isolation_level=1) == [("topic", 0, [])]
            pending = reader.wait(isolation_level=1)
            await asyncio.sleep(0)
            append(partition, b"a")
            await asyncio.sleep(0)
            assert not pending.done()
            transaction.marker_offset = 1
            append(partition, b"m")
            answer = await pending
            assert len(reader.taken(answer)) == 1
            assert values(only_row(answer)) == [b"a", b"m"]

        asyncio.run(main())

    def test_a_new_high_watermark_is_told_with_the_next_answer(self, host, monkeypatch) -> None:
        partition = host.host()
        reader = Reader(host)
        Transaction(monkeypatch, partition.log, 0)
        assert reader.told(("topic", 0, 0), isolation_level=1) == [("topic", 0, [])]
        append(partition, b"a")
        append(partition, b"b")
        answer = reader.ask(isolation_level=1)
        row = only_row(answer)
        assert (row.high_watermark, row.last_stable_offset, values(row)) == (2, 0, [])
        assert reader.told(isolation_level=1) == []
        append(partition, b"c")
        assert reader.told(isolation_level=1) == [("topic", 0, [])]


def _size_of(partition) -> int:
    """The size of the batch that is appended now."""
    before = partition.bytes_in
    append(partition, b"a")
    return int(partition.bytes_in - before)


@pytest.mark.parametrize("isolation_level, rows", [(0, None), (1, [])])
def test_the_list_of_aborted_transactions_is_none_for_who_reads_all(
    host, isolation_level: int, rows: list[Any] | None
) -> None:
    append(host.host(), b"a")
    asked = request(("topic", 0, 0), isolation_level=isolation_level)
    assert only_row(fetch(host, asked, host.context(12))).aborted_transactions == rows
