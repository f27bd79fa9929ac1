"""What every implementation of MetadataStore must do. A test module subclasses it and brings the fixture `store`.

Revisions grow, but not by one: in a store that others use too, under another prefix, each of their writes takes one.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

import pytest
from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Compare,
    Delete,
    Deleted,
    DeletePrefix,
    Get,
    KeyValue,
    LeaseNotFound,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
    StoreUnavailable,
    Target,
    Txn,
    TxnResult,
    WatchBatch,
    absent,
    created_at,
    exists,
    modified_at,
    value_is,
    version_is,
)

PATIENCE_S = 20
MADE, CHANGED = -1, -2  # stand for the revisions that a test learns as it runs
T = TypeVar("T")


async def write(store: MetadataStore, *operations: Operation) -> TxnResult:
    return await store.txn(Txn(success=operations))


async def soon(generator: AsyncGenerator[T, None]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(generator)


async def collect(store: MetadataStore, after: int, count: int) -> list[Snapshot | WatchBatch]:
    async with aclosing(store.watch(after_revision=after)) as changes:
        return [await soon(changes) for _ in range(count)]


async def until_absent(store: MetadataStore, key: str) -> None:
    async with asyncio.timeout(PATIENCE_S), aclosing(store.watch(key)) as changes:
        async for change in changes:
            if isinstance(change, Snapshot) and not change.items:
                return
            if isinstance(change, WatchBatch) and isinstance(change.events[-1], Deleted):
                return


class MetadataStoreContract:
    async def test_an_absent_key_is_none(self, store: MetadataStore) -> None:
        assert await store.get("nothing") is None

    async def test_a_key_carries_its_revisions(self, store: MetadataStore) -> None:
        first = await write(store, Put("a", b"1"))
        assert await store.get("a") == KeyValue("a", b"1", first.revision, first.revision, 1)
        second = await write(store, Put("a", b"2"))
        assert second.revision > first.revision
        assert await store.get("a") == KeyValue("a", b"2", first.revision, second.revision, 2)

    async def test_a_key_made_again_begins_anew(self, store: MetadataStore) -> None:
        await write(store, Put("a", b"1"))
        await write(store, Delete("a"))
        assert await store.get("a") is None
        again = await write(store, Put("a", b"2"))
        assert await store.get("a") == KeyValue("a", b"2", again.revision, again.revision, 1)

    async def test_one_transaction_is_one_revision(self, store: MetadataStore) -> None:
        before = await write(store, Put("old/1", b""), Put("old/2", b""), Put("older", b""))
        result = await write(store, Put("a", b"1"), Put("b", b"2"), DeletePrefix("old/"))
        left = await store.range("")
        assert [item.key for item in left.items] == ["a", "b", "older"]
        (batch,) = await collect(store, before.revision, 1)
        assert isinstance(batch, WatchBatch)
        assert batch.revision == result.revision
        assert [each.key for each in batch.events] == ["a", "b", "old/1", "old/2"]

    async def test_what_writes_nothing_makes_no_revision(self, store: MetadataStore) -> None:
        before = await write(store, Put("a", b"1"))
        assert (await write(store, Delete("nothing"), DeletePrefix("none/"), Get("a"))).succeeded
        after = await write(store, Put("b", b"1"))
        (batch,) = await collect(store, before.revision, 1)
        assert batch.revision == after.revision

    @pytest.mark.parametrize(
        "compare, holds",
        [
            (created_at("a", MADE), True),
            (created_at("a", CHANGED), False),
            (modified_at("a", CHANGED), True),
            (modified_at("a", MADE), False),
            (version_is("a", 2), True),
            (version_is("a", 1), False),
            (value_is("a", b"2"), True),
            (value_is("a", b"1"), False),
            (Compare("a", Target.VALUE, b"1", negated=True), True),
            (exists("a"), True),
            (absent("a"), False),
            (absent("none"), True),
            (exists("none"), False),
            (modified_at("none", 0), True),
            (version_is("none", 0), True),
            (value_is("none", b""), False),
            (Compare("none", Target.VALUE, b"1", negated=True), False),
        ],
    )
    async def test_compares(self, store: MetadataStore, compare: Compare, holds) -> None:
        made = await write(store, Put("a", b"1"))
        changed = await write(store, Put("a", b"2"))
        learnt: dict[int | bytes, int] = {MADE: made.revision, CHANGED: changed.revision}
        operand = learnt.get(compare.operand, compare.operand)
        compare = Compare(compare.key, compare.target, operand, compare.negated)
        result = await store.txn(Txn([compare], [Put("b", b"yes")], [Put("b", b"no")]))
        assert result.succeeded is holds
        chosen = await store.get("b")
        assert chosen is not None
        assert chosen.value == (b"yes" if holds else b"no")

    async def test_all_compares_must_hold(self, store: MetadataStore) -> None:
        await write(store, Put("a", b"1"))
        txn = Txn([exists("a"), exists("b")], [Put("c", b"")], [Get("a"), Get("b")])
        result = await store.txn(txn)
        assert not result.succeeded
        assert [read and read.value for read in result.reads] == [b"1", None]
        assert await store.get("c") is None

    async def test_of_many_creators_one_wins(self, store: MetadataStore) -> None:
        async def create(name: bytes) -> TxnResult:
            return await store.txn(Txn([absent("a")], [Put("a", name)], [Get("a")]))

        results = await asyncio.gather(*(create(b"%d" % number) for number in range(20)))
        assert [result.succeeded for result in results].count(True) == 1
        won = await store.get("a")
        assert won is not None
        assert results[int(won.value)].succeeded
        assert {r.reads for r in results if not r.succeeded} == {(won,)}

    @pytest.mark.parametrize(
        "operations",
        [
            [Put("a", b"1"), Put("a", b"2")],
            [Put("a", b"1"), Delete("a")],
            [Put("a", b"1"), Get("a")],
            [Put("a/b", b"1"), DeletePrefix("a/")],
            [DeletePrefix("")],
            [DeletePrefix("a/"), DeletePrefix("a/b/")],
            [Put(f"{number}", b"") for number in range(TXN_OPERATIONS_MAX + 1)],
            [Put("a", bytes(TXN_BYTES_MAX))],
        ],
    )
    async def test_what_one_store_refuses_all_refuse(
        self, store: MetadataStore, operations: list[Operation]
    ) -> None:
        with pytest.raises(ValueError, match=r"transaction|deletion|everything"):
            await store.txn(Txn(success=operations))
        with pytest.raises(ValueError, match=r"transaction|deletion|everything"):
            await store.txn(Txn(failure=operations))

    async def test_the_largest_transaction_passes(self, store: MetadataStore) -> None:
        size = TXN_BYTES_MAX // TXN_OPERATIONS_MAX - 32
        keys = [f"k{number:03}" for number in range(TXN_OPERATIONS_MAX)]
        puts = [Put(key, bytes(size)) for key in keys]
        result = await store.txn(Txn([absent(key) for key in keys], puts))
        assert result.succeeded
        assert [item.key for item in (await store.range("k")).items] == keys

    async def test_a_range_is_complete_and_sorted(self, store: MetadataStore) -> None:
        for start in range(0, 2500, 125):
            await write(store, *(Put(f"p/{start + number:05}", b"x") for number in range(125)))
        last = await write(store, Put("q", b""))
        found = await store.range("p/")
        assert found.revision >= last.revision
        assert [item.key for item in found.items] == [f"p/{number:05}" for number in range(2500)]
        assert len((await store.range("")).items) == 2501

    async def test_a_watch_begins_with_a_snapshot_then_follows(self, store: MetadataStore) -> None:
        first = await write(store, Put("p/a", b"1"), Put("other", b""))
        async with aclosing(store.watch("p/")) as changes:
            snapshot = await soon(changes)
            assert isinstance(snapshot, Snapshot)
            assert snapshot.revision >= first.revision
            assert snapshot.items == (KeyValue("p/a", b"1", first.revision, first.revision, 1),)
            await write(store, Put("other", b"2"))
            second = await write(store, Put("p/b", b"2"), Delete("p/a"), Put("other", b"3"))
            assert await soon(changes) == WatchBatch(
                second.revision,
                (KeyValue("p/b", b"2", second.revision, second.revision, 1), Deleted("p/a")),
            )

    async def test_a_watch_replays_every_revision_in_order(self, store: MetadataStore) -> None:
        first = await write(store, Put("a", b""))
        revisions = [
            (await write(store, *(Put(f"{turn}/{n}", b"") for n in range(3)))).revision
            for turn in range(50)
        ]
        batches = await collect(store, first.revision, 50)
        assert [batch.revision for batch in batches] == revisions
        assert all(isinstance(b, WatchBatch) and len(b.events) == 3 for b in batches)

    async def test_watchers_at_different_places_see_the_same(self, store: MetadataStore) -> None:
        start = (await store.range("")).revision
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(collect(store, start, 30)) for _ in range(3)]
            for number in range(30):
                await write(store, Put("a", b"%d" % number))
        late = await collect(store, start, 30)
        assert all(task.result() == late for task in tasks)

    async def test_a_compacted_start_becomes_a_snapshot(self, store: MetadataStore) -> None:
        first = await write(store, Put("a", b"1"))
        for number in range(5):
            last = await write(store, Put("b", b"%d" % number))
        await store.compact(last.revision)
        async with aclosing(store.watch(after_revision=first.revision)) as changes:
            snapshot = await soon(changes)
            assert isinstance(snapshot, Snapshot)
            assert snapshot.revision >= last.revision
            assert [item.key for item in snapshot.items] == ["a", "b"]
            after = await write(store, Put("c", b""))
            batch = await soon(changes)
            assert isinstance(batch, WatchBatch)
            assert batch.revision == after.revision

    async def test_history_behind_the_compaction_is_still_replayed(
        self, store: MetadataStore
    ) -> None:
        revisions = [(await write(store, Put("a", b"%d" % n))).revision for n in range(5)]
        await store.compact(revisions[2])
        batches = await collect(store, revisions[2], 2)
        assert [batch.revision for batch in batches] == revisions[3:]

    async def test_revoking_a_lease_deletes_its_keys_at_once(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(10)
        assert lease.ttl_s >= 10
        await write(store, Put("b", b"", lease.id), Put("a", b"", lease.id), Put("stays", b""))
        made = await write(store, Put("own", b"", lease.id))
        own = await store.get("own")
        assert own is not None
        assert own.lease == lease.id
        await lease.revoke()
        await asyncio.wait_for(lease.lost(), PATIENCE_S)
        (batch,) = await collect(store, made.revision, 1)
        assert isinstance(batch, WatchBatch)
        assert batch.revision > made.revision
        assert {event.key for event in batch.events} == {"a", "b", "own"}
        assert all(isinstance(event, Deleted) for event in batch.events)
        await lease.revoke()
        assert [item.key for item in (await store.range("")).items] == ["stays"]

    async def test_an_ended_lease_takes_no_keys(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(10)
        await lease.revoke()
        with pytest.raises(LeaseNotFound):
            await write(store, Put("free", b""), Put("a", b"", lease.id))
        assert (await store.range("")).items == ()

    async def test_a_put_without_lease_detaches_the_key(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(10)
        await write(store, Put("a", b"", lease.id))
        await write(store, Put("a", b"2"))
        await lease.revoke()
        assert await store.get("a") is not None

    async def test_leases_are_independent(self, store: MetadataStore) -> None:
        one, two = await store.grant_lease(10), await store.grant_lease(10)
        assert one.id != two.id
        await write(store, Put("one", b"", one.id), Put("two", b"", two.id))
        await one.revoke()
        assert [item.key for item in (await store.range("")).items] == ["two"]
        await two.revoke()

    async def test_keys_and_values_may_be_anything(self, store: MetadataStore) -> None:
        await write(store, Put("topic/größe 日本", bytes(range(256))), Put("empty", b""))
        found = await store.get("topic/größe 日本")
        assert found is not None
        assert found.value == bytes(range(256))
        assert [item.key for item in (await store.range("topic/g")).items] == ["topic/größe 日本"]

    async def test_a_closed_store_says_so(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(10)
        await write(store, Put("a", b"", lease.id))
        changes = store.watch()
        await soon(changes)
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await soon(changes)
        with pytest.raises(StoreUnavailable):
            await store.get("a")
        with pytest.raises(StoreUnavailable):
            await write(store, Put("a", b""))
        await store.close()
