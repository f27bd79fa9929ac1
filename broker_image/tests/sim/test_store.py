"""The simulated store keeps the contract of the real ones, and does to its clients what only a simulation can do on purpose."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from logfleet.metadata.store import (
    Get,
    KeyValue,
    Put,
    Snapshot,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    WatchBatch,
    absent,
)

from broker_image.tests.contract.metadata_store import MetadataStoreContract
from broker_image.tests.sim.kernel import Host, Kernel
from broker_image.tests.sim.net import SimNet
from broker_image.tests.sim.store import NEVER, SimStore, StoreState
from broker_image.tests.sim.tape import Tape


class StateLease:
    """A lease of a StateStore."""

    deadline_s = float("inf")

    def __init__(self, store: "StateStore", ttl_s: int) -> None:
        self.ttl_s = ttl_s
        self.id = store.state.grant(ttl_s)
        self._store = store
        self._lost = asyncio.Event()

    async def lost(self) -> None:
        await self._lost.wait()

    async def revoke(self) -> None:
        self._store.state.end_lease(self.id)
        self._store.tell()
        self._lost.set()


class StateStore:
    """`StoreState` as a MetadataStore, for its contract."""

    def __init__(self) -> None:
        self.state = StoreState()
        self._is_closed = False
        self._news = asyncio.Event()

    def tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _check(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("closed")

    async def get(self, key: str) -> KeyValue | None:
        self._check()
        return self.state.items.get(key)

    async def range(self, prefix: str) -> Snapshot:
        self._check()
        return self.state.range(prefix)

    async def txn(self, txn: Txn) -> TxnResult:
        self._check()
        result = self.state.txn(txn)
        self.tell()
        return result

    async def grant_lease(self, ttl_s: int) -> StateLease:
        self._check()
        return StateLease(self, ttl_s)

    async def watch(
        self, prefix: str = "", *, after_revision: int | None = None
    ) -> AsyncGenerator[Snapshot | WatchBatch, None]:
        at = after_revision
        while not self._is_closed:
            news, found = self._news, None if at is None else self.state.since(at)
            if found is None:
                snapshot = self.state.range(prefix)
                at = snapshot.revision
                yield snapshot
                continue
            for batch in found:
                at = batch.revision
                events = tuple(each for each in batch.events if each.key.startswith(prefix))
                if events:
                    yield WatchBatch(batch.revision, events)
            if not found:
                await news.wait()

    async def compact(self, revision: int) -> None:
        self.state.compact(revision)

    async def close(self) -> None:
        self._is_closed = True
        self.tell()


@pytest.fixture
def store() -> StateStore:
    return StateStore()


@pytest.mark.asyncio
class TestSimStore(MetadataStoreContract):
    pass


class Rig:
    def __init__(self) -> None:
        self.kernel = Kernel(Tape(0, {}))
        self.net = SimNet(self.kernel)
        self.store = SimStore(self.kernel, self.net)
        self.host = Host("b1")

    def after(self, ms: int) -> None:
        self.kernel.run(self.kernel.now + ms)

    def put(self, key: str, *, lease: int = 0) -> object:
        answer = self.store.txn(self.host, Txn([absent(key)], [Put(key, b"", lease)], [Get(key)]))
        self.after(1_500)
        return answer.value


def test_a_proposal_may_be_committed_after_its_client_has_given_up() -> None:
    rig = Rig()
    rig.store.scripted["b1"] = [3_000]
    assert isinstance(rig.put("other/a"), UnknownOutcome)
    assert rig.store.state.items == {}
    rig.after(2_000)
    assert list(rig.store.state.items) == ["other/a"]


def test_an_answer_may_be_lost_of_what_was_done() -> None:
    rig = Rig()
    rig.store.scripted["b1"] = [1]
    assert isinstance(rig.put("other/a"), UnknownOutcome)
    assert list(rig.store.state.items) == ["other/a"]


def test_neither_may_a_transaction_be_done_nor_answered_though_the_store_is_there() -> None:
    rig = Rig()
    rig.store.scripted["b1"] = [NEVER]
    assert isinstance(rig.put("other/a"), UnknownOutcome)
    rig.after(60_000)
    assert rig.store.state.items == {}
    assert isinstance(rig.put("other/a"), TxnResult)


def test_no_lease_ends_without_quorum_and_afterwards_each_is_as_new() -> None:
    rig = Rig()
    lease = rig.store.grant_lease(rig.host, 3)
    rig.after(10)
    rig.put("other/a", lease=lease.value)
    rig.store.outage(10_000)
    rig.after(12_000)
    assert list(rig.store.state.items) == ["other/a"]
    rig.after(1_500)
    assert rig.store.state.items == {}


def test_a_watch_shows_complete_revisions_late_and_after_compaction_all_at_once() -> None:
    rig = Rig()
    seen: list[int] = []
    rig.store.watch(rig.host, lambda image: seen.append(image.revision))
    rig.put("other/a")
    assert seen == [2]
    rig.store.hold_watch(rig.host)
    rig.put("other/b")
    rig.put("other/c")
    rig.store.compact()
    assert seen == [2]
    rig.store.hold_watch(rig.host, is_held=False)
    rig.after(10)
    assert seen == [2, 4]
    assert rig.kernel.labels["a watch began again with a snapshot"] == 1


def test_all_leases_may_have_ended_when_the_quorum_is_back() -> None:
    rig = Rig()
    lease = rig.store.grant_lease(rig.host, 30)
    rig.after(10)
    rig.put("other/a", lease=lease.value)
    rig.store.outage(1_000, ends_leases=True)
    rig.after(900)
    assert list(rig.store.state.items) == ["other/a"]
    rig.after(200)
    assert rig.store.state.items == {}


def test_another_tenants_writes_move_the_revision_and_no_watch_shows_them() -> None:
    rig = Rig()
    seen: list[int] = []
    rig.store.watch(rig.host, lambda image: seen.append(image.revision))
    rig.put("other/a")
    rig.store.faults.tenant = 100
    rig.kernel.tape = Tape(0, {"tenant": [99, 99, 99]})
    result = rig.put("other/a")
    assert isinstance(result, TxnResult)
    assert (result.succeeded, result.revision, seen) == (False, 3, [2])
    rig.store.compact()
    rig.after(10)
    assert seen == [2]
    rig.put("other/b")
    assert seen == [2, 5]
    assert rig.kernel.labels["a watch began again with a snapshot"] == 0


def test_a_snapshot_has_the_revision_of_the_whole_store() -> None:
    rig = Rig()
    rig.put("other/a")
    rig.store.state.write_elsewhere()
    seen: list[int] = []
    rig.store.watch(rig.host, lambda image: seen.append(image.revision))
    rig.after(10)
    assert seen == [3]
