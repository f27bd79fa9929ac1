"""The store when etcd freezes, dies, comes back, forgets, or is another one."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from grpc import ChannelConnectivity
from logfleet.io.clock import boot_s
from logfleet.io.etcd import endpoints
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.store import (
    Get,
    Put,
    Snapshot,
    StoreReplaced,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    WatchBatch,
    absent,
)

from broker_image.tests.contract.metadata_store import PATIENCE_S, soon, until_absent, write
from broker_image.tests.etcd.leases import kept_until, revoke_for_another
from e2e.harness.etcd import EtcdBinary, EtcdServer, etcd_cluster

pytestmark = pytest.mark.asyncio
PREFIX = "/logfleet/test/"


def connect(*servers: EtcdServer) -> EtcdStore:
    return EtcdStore(Addresses.parse([server.endpoint for server in servers]), PREFIX)


async def settle(store: EtcdStore, txn: Txn) -> TxnResult:
    """Commit the same transaction until the answer is definite."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await store.txn(txn)
            except (UnknownOutcome, StoreUnavailable):
                continue


def created(key: str, value: bytes) -> Txn:
    return Txn([absent(key)], [Put(key, value)], [Get(key)])


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("fault", ["freeze", "kill"])
async def test_a_lost_member_is_left_for_the_next(
    binary: EtcdBinary, tmp_path: Path, fault: str
) -> None:
    with etcd_cluster(binary, tmp_path, 3) as servers:
        store = connect(*servers)
        first = await settle(store, created("before", b""))
        async with aclosing(store.watch(after_revision=first.revision)) as changes:
            await settle(store, created("a", b""))
            assert isinstance(await soon(changes), WatchBatch)
            port = store._members.current.target.rpartition(":")[2]
            victim = next(server for server in servers if str(server.port) == port)
            if fault == "freeze":
                victim.pause()
            else:
                victim.kill()
            started = time.monotonic()
            await settle(store, created("b", b""))
            assert time.monotonic() - started < 15, "an election and a deadline, not a TCP timeout"
            batch = await soon(changes)
            assert isinstance(batch, WatchBatch)
            assert [event.key for event in batch.events] == ["b"]
        await store.close()


@pytest.mark.usefixtures("impatience")
async def test_a_watch_leaves_a_frozen_member_though_nobody_calls(
    binary: EtcdBinary, tmp_path: Path
) -> None:
    with etcd_cluster(binary, tmp_path, 3) as servers:
        watching = connect(*servers)
        async with aclosing(watching.watch()) as changes:
            await soon(changes)
            port = watching._members.current.target.rpartition(":")[2]
            reading = asyncio.ensure_future(soon(changes))
            victim = next(server for server in servers if str(server.port) == port)
            victim.pause()
            writing = connect(*(server for server in servers if server is not victim))
            await settle(writing, created("a", b""))
            batch = await reading
            assert isinstance(batch, WatchBatch)
        await watching.close()
        await writing.close()


async def test_a_watch_goes_on_after_a_restart(server: EtcdServer, store: EtcdStore) -> None:
    start = await write(store, Put("a", b"0"))
    async with aclosing(store.watch(after_revision=start.revision)) as changes:
        await write(store, Put("a", b"1"))
        seen = [await soon(changes)]
        reading = asyncio.ensure_future(anext(changes))
        server.kill()
        server.start()
        await settle(store, created("b", b""))
        seen += [await asyncio.wait_for(reading, PATIENCE_S)]
        await write(store, Put("a", b"2"))
        seen += [await soon(changes)]
    assert [batch.revision - start.revision for batch in seen] == [1, 2, 3]
    assert all(isinstance(batch, WatchBatch) for batch in seen)


async def test_a_watch_that_missed_a_compaction_gets_a_snapshot(
    server: EtcdServer, store: EtcdStore
) -> None:
    await write(store, Put("a", b"0"))
    async with aclosing(store.watch()) as changes:
        assert isinstance(await soon(changes), Snapshot)
        await write(store, Put("a", b"1"))
        await soon(changes)
        reading = asyncio.ensure_future(anext(changes))
        server.kill()
        known_port = server.port
        server.port = server.ports.reserve()
        server.start()
        elsewhere = connect(server)
        await settle(elsewhere, created("b", b""))
        last = await write(elsewhere, Put("a", b"2"))
        await elsewhere.compact(last.revision)
        await elsewhere.close()
        server.kill()
        server.port = known_port
        server.start()
        snapshot = await asyncio.wait_for(reading, PATIENCE_S)
        assert isinstance(snapshot, Snapshot)
        assert [(item.key, item.value) for item in snapshot.items] == [("a", b"2"), ("b", b"")]
        await write(store, Put("c", b""))
        assert isinstance(await soon(changes), WatchBatch)


@pytest.mark.usefixtures("impatience")
async def test_an_unanswered_transaction_is_unknown_until_one_like_it_is_answered(
    server: EtcdServer, store: EtcdStore
) -> None:
    await settle(store, created("warm", b""))
    mine = created("a", b"mine")
    server.pause()
    with pytest.raises(UnknownOutcome):
        await store.txn(mine)
    server.resume()
    result = await settle(store, mine)
    there = await store.get("a")
    assert there is not None
    assert (there.value, there.version) == (b"mine", 1)
    assert result.succeeded or result.reads == (there,)


async def test_without_etcd_nothing_was_sent_and_that_is_known(
    server: EtcdServer, store: EtcdStore, monkeypatch
) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE_S", 0.3)
    await write(store, Put("a", b""))
    server.kill()
    with pytest.raises((StoreUnavailable, UnknownOutcome)):
        await write(store, Put("a", b"lost connection"))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await write(store, Put("a", b"no connection"))
        with pytest.raises(StoreUnavailable):
            await store.get("a")
    server.start()
    assert (await settle(store, created("b", b""))).succeeded


async def test_a_lease_is_kept_far_beyond_its_ttl(store: EtcdStore) -> None:
    lease = await store.grant_lease(6)
    await write(store, Put("a", b"", lease.id))
    await kept_until(lease, lease.deadline_s + lease.ttl_s)
    assert await store.get("a") is not None


async def test_a_lease_ends_with_its_process(server: EtcdServer, store: EtcdStore) -> None:
    other = connect(server)
    lease = await other.grant_lease(3)
    await write(other, Put("a", b"", lease.id))
    await other.close()
    await until_absent(store, "a")


async def test_a_lease_outlives_an_etcd_that_is_away_for_longer_than_its_ttl(
    server: EtcdServer, store: EtcdStore
) -> None:
    """etcd renews all leases when it elects a leader, also after a start: who asks on keeps what it had."""
    lease = await store.grant_lease(3)
    made = await write(store, Put("a", b"", lease.id))
    server.kill()
    while boot_s() <= lease.deadline_s + 1:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.lost(), 0.5)
    server.start()
    await kept_until(lease, lease.deadline_s)
    there = await store.get("a")
    assert there is not None
    assert there.create_revision == made.revision


async def test_a_hung_loop_loses_its_lease(server: EtcdServer, store: EtcdStore) -> None:
    lease = await store.grant_lease(3)
    await write(store, Put("a", b"", lease.id))
    assert store._ticking is not None
    store._ticking.cancel()
    await until_absent(store, "a")
    store._tick()
    async with asyncio.timeout(20):
        await lease.lost()


async def test_a_lease_revoked_by_another_is_lost(server: EtcdServer, store: EtcdStore) -> None:
    lease = await store.grant_lease(15)
    runs_out_s = lease.deadline_s
    other = connect(server)
    await revoke_for_another(other, lease.id)
    async with asyncio.timeout_at(runs_out_s):  # the next renewal, after a third of that, tells
        await lease.lost()
    await other.close()


async def test_a_lease_survives_a_restart_of_etcd(server: EtcdServer, store: EtcdStore) -> None:
    lease = await store.grant_lease(15)
    await write(store, Put("a", b"", lease.id))
    server.kill()
    server.start()
    await kept_until(lease, lease.deadline_s)
    assert await store.get("a") is not None


@pytest.mark.usefixtures("impatience")
async def test_leases_move_to_the_next_member(binary: EtcdBinary, tmp_path: Path) -> None:
    with etcd_cluster(binary, tmp_path, 3) as servers:
        store = connect(*servers)
        lease = await store.grant_lease(15)
        await settle(store, Txn([absent("a")], [Put("a", b"", lease.id)], [Get("a")]))
        target = store._keeper._members[0]._target
        next(s for s in servers if target.endswith(f":{s.port}")).pause()
        await kept_until(lease, lease.deadline_s)
        assert await store.get("a") is not None
        await store.close()


async def test_who_keeps_a_lease_is_connected_to_all_members(
    binary: EtcdBinary, tmp_path: Path
) -> None:
    """Where the member in use goes together with all name servers, the others have to be found without one."""
    with etcd_cluster(binary, tmp_path, 3) as servers:
        store = connect(*servers)
        lease = await store.grant_lease(6)
        async with asyncio.timeout(PATIENCE_S):
            for member in store._members._members:
                while (state := member.channel.get_state()) is not ChannelConnectivity.READY:
                    await member.channel.wait_for_state_change(state)
        for _ in servers:
            await kept_until(lease, lease.deadline_s)
        assert all(member._channel is not None for member in store._keeper._members), (
            "each has renewed it in its turn"
        )
        await store.close()


async def test_a_wiped_etcd_is_no_continuation(server: EtcdServer, store: EtcdStore) -> None:
    for number in range(5):
        await write(store, Put("a", b"%d" % number))
    async with aclosing(store.watch()) as changes:
        await soon(changes)
        reading = asyncio.ensure_future(anext(changes))
        server.kill()
        server.wipe()
        server.start()
        with pytest.raises(StoreReplaced):
            await asyncio.wait_for(reading, PATIENCE_S)
    with pytest.raises(StoreReplaced):
        await store.get("a")


async def test_another_cluster_at_the_same_address_is_refused(
    server: EtcdServer, store: EtcdStore
) -> None:
    await write(store, Put("a", b""))
    server.kill()
    server.wipe()
    server.name = "other"
    server.peer_port = server.ports.reserve()
    server.cluster = f"other={server.peer_url}"
    server.start()
    with pytest.raises(StoreReplaced, match="cluster"):
        await store.get("a")


async def test_a_range_of_many_pages_is_of_one_revision(store: EtcdStore, monkeypatch) -> None:
    monkeypatch.setattr("logfleet.io.etcd.store.PAGE_KEYS_MAX", 10)
    await write(store, *(Put(f"k/{number:03}", b"0") for number in range(100)))
    stop = asyncio.Event()

    async def keep_writing() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await write(store, *(Put(f"k/{n:03}", b"%d" % number) for n in range(0, 100, 9)))

    async with asyncio.TaskGroup() as group:
        group.create_task(keep_writing())
        for _ in range(10):
            found = await store.range("k/")
            assert len(found.items) == 100
            assert len({item.value for item in found.items[::9]}) == 1
        stop.set()


async def test_a_range_begins_anew_if_compacted_in_the_middle(
    store: EtcdStore, monkeypatch
) -> None:
    monkeypatch.setattr("logfleet.io.etcd.store.PAGE_KEYS_MAX", 2)
    await write(store, *(Put(f"k/{number}", b"0") for number in range(5)))
    real, calls = store._read, 0

    async def compacting(request):
        nonlocal calls
        calls += 1
        if calls == 2:
            last = await write(store, Put("k/0", b"1"), Put("k/4", b"1"))
            await store.compact(last.revision)
        return await real(request)

    monkeypatch.setattr(store, "_read", compacting)
    found = await store.range("k/")
    assert [item.value for item in found.items] == [b"1", b"0", b"0", b"0", b"1"]
