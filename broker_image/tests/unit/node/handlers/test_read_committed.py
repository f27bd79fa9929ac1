"""Fetch with isolation level 1, at the last stable offset; see also test_aborted_transactions."""

import asyncio
from typing import Any

import pytest
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.node.handlers.fetch_rig import fetch, only_row, request
from broker_image.tests.unit.node.handlers.test_fetch_sessions import Reader
from broker_image.tests.unit.node.handlers.transactions_rig import PLAIN, History, append, values

Served = LeaderPartition | FollowerPartition


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture(params=["leader", "follower"])
def partition(request: pytest.FixtureRequest, host: Any) -> Served:
    """In both roles it serves readers of committed transactions alike (KIP-392)."""
    host.know_topic("topic", {0: 1 if request.param == "leader" else 2})
    leader: LeaderPartition = host.host()
    if request.param == "leader":
        return leader
    host.partitions.remove(leader)
    follower = FollowerPartition(Replica.of(leader), 2, LeaderEpoch(5))
    host.partitions.add(follower)
    return follower


def ask(host: Any, offset: int, isolation_level: int = 1, **more: Any) -> Any:
    asked = request(("topic", 0, offset), isolation_level=isolation_level, **more)
    return fetch(host, asked, host.context(12))


def wait(host: Any, offset: int, **more: Any) -> "asyncio.Task[Any]":
    pending = ask(host, offset, max_wait_ms=100_000, **more)
    assert asyncio.iscoroutine(pending), "it should wait"
    return asyncio.ensure_future(pending)


def test_a_reader_of_committed_transactions_gets_nothing_beyond_the_last_stable_offset(
    host: Any, partition: Served, history: History
) -> None:
    for producer_id in (PLAIN, 1, PLAIN):
        append(partition, history.write(producer_id))
    row = only_row(ask(host, 0))
    assert (values(row), row.aborted_transactions) == ([b"0"], [])
    assert (row.high_watermark, row.last_stable_offset) == (3, 1)
    for offset in (1, 2, 3):
        row = only_row(ask(host, offset))
        assert (row.error_code, values(row), row.aborted_transactions) == (0, [], [])
    row = only_row(ask(host, 0, isolation_level=0))
    assert (values(row), row.aborted_transactions) == ([b"0", b"1", b"2"], None)
    assert row.last_stable_offset == 1, "it is reported to everybody"


def test_a_row_without_a_read_has_no_list_of_aborted_transactions(
    host: Any, partition: Served, history: History
) -> None:
    """As in Kafka: the reader has to go elsewhere first."""
    append(partition, history.write(PLAIN))
    asked = request(("topic", 0, 1, {"last_fetched_epoch": 4}), isolation_level=1)
    row = only_row(fetch(host, asked, host.context(12)))
    assert row.diverging_epoch is not None
    assert row.aborted_transactions is None


def test_who_reads_all_gets_aborted_records_and_no_list(
    host: Any, partition: Served, history: History
) -> None:
    append(partition, history.write(1))
    append(partition, history.end(1, commit=False))
    for isolation_level, expected in ((0, None), (1, [(1, 0)])):
        row = only_row(ask(host, 0, isolation_level=isolation_level))
        listed = row.aborted_transactions
        assert (listed and [(each.producer_id, each.first_offset) for each in listed]) == expected
        assert len(values(row)) == 2


class TestWaiting:
    def test_what_is_not_stable_does_not_end_the_wait(
        self, host: Any, partition: Served, history: History
    ) -> None:
        """1,000 parked readers, and one open transaction."""

        async def main() -> None:
            append(partition, history.write(1))
            pending = [wait(host, 0) for _ in range(1_000)]
            await asyncio.sleep(0)
            for producer_id in (1, PLAIN) * 5:
                append(partition, history.write(producer_id))
                await asyncio.sleep(0)
            assert host.parked.fetches == 1_000, "none has even read again"
            append(partition, history.end(1, commit=True))
            rows = [only_row(answer) for answer in await asyncio.gather(*pending)]
            assert {len(values(row)) for row in rows} == {12}
            assert len(partition.waiters) == 0

        asyncio.run(main())

    def test_an_aborted_transaction_ends_the_wait_and_is_listed(
        self, host: Any, partition: Served, history: History
    ) -> None:
        async def main() -> None:
            append(partition, history.write(1))
            pending = wait(host, 0)
            await asyncio.sleep(0)
            append(partition, history.end(1, commit=False))
            (listed,) = only_row(await pending).aborted_transactions
            assert (listed.producer_id, listed.first_offset) == (1, 0)

        asyncio.run(main())

    def test_bytes_that_became_stable_count_towards_min_bytes(
        self, host: Any, partition: Served, history: History
    ) -> None:
        async def main() -> None:
            append(partition, history.write(1))
            min_bytes = len(history.data) + 2 * 78 + 1
            pending = wait(host, 0, min_bytes=min_bytes)
            await asyncio.sleep(0)
            append(partition, history.end(1, commit=True))  # both batches are stable now
            append(partition, history.end(1, commit=True))
            await asyncio.sleep(0)
            assert not pending.done()
            append(partition, history.write(PLAIN))
            assert len(only_row(await pending).records) == len(history.data) >= min_bytes

        asyncio.run(main())

    def test_plain_records_before_a_transaction_are_stable_at_once(
        self, host: Any, partition: Served, history: History
    ) -> None:
        async def main() -> None:
            pending = wait(host, 0)
            await asyncio.sleep(0)
            append(partition, history.write(PLAIN) + history.write(1))
            assert values(only_row(await pending)) == [b"0"]

        asyncio.run(main())

    def test_a_disk_failure_while_bytes_are_counted_is_met_by_the_reader(
        self, host: Any, partition: Served, history: History, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def main() -> None:
            append(partition, history.write(1))
            pending = wait(host, 0)
            await asyncio.sleep(0)
            failure = OSError("bad sector")

            def failing(*_: object, **__: object) -> None:
                raise failure

            monkeypatch.setattr(partition.log, "read", failing)
            append(partition, history.end(1, commit=True))
            assert only_row(await pending).error_code == 56
            assert host.failed == [(partition, failure)]

        asyncio.run(main())


class TestSessions:
    def test_a_row_is_told_when_its_records_are_stable(
        self, host: Any, partition: Served, history: History
    ) -> None:
        async def main() -> None:
            reader = Reader(host)
            assert reader.told(("topic", 0, 0), isolation_level=1) == [("topic", 0, [])]
            pending = reader.wait(isolation_level=1)
            await asyncio.sleep(0)
            for _ in range(3):
                append(partition, history.write(1))
                await asyncio.sleep(0)
            assert host.parked.fetches == 1
            append(partition, history.end(1, commit=False))
            answer = await pending
            assert len(reader.taken(answer)) == 1
            row = only_row(answer)
            assert (len(values(row)), row.last_stable_offset) == (4, 4)
            assert [each.first_offset for each in row.aborted_transactions] == [0]
            assert reader.told(("topic", 0, 4), isolation_level=1) == []

        asyncio.run(main())

    def test_a_new_high_watermark_is_told_with_the_next_answer(
        self, host: Any, partition: Served, history: History
    ) -> None:
        reader = Reader(host)
        assert reader.told(("topic", 0, 0), isolation_level=1) == [("topic", 0, [])]
        for _ in range(2):
            append(partition, history.write(1))
        row = only_row(reader.ask(isolation_level=1))
        assert (row.high_watermark, row.last_stable_offset, values(row)) == (2, 0, [])
        assert reader.told(isolation_level=1) == []
        append(partition, history.write(1))
        assert reader.told(isolation_level=1) == [("topic", 0, [])]
