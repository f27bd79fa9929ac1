import asyncio
from pathlib import Path
from typing import Self

import msgspec
import pytest
import pytest_asyncio
from logfleet import __version__
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata import attempts
from logfleet.metadata.kinds.brokers import (
    ACTIVE,
    BROKER,
    FENCE,
    FENCED,
    BrokerValue,
    Endpoint,
    FenceValue,
)
from logfleet.metadata.kinds.cluster import CLUSTER_ID, FEATURES, FeaturesValue
from logfleet.metadata.store import (
    Delete,
    Put,
    StoreRefused,
    StoreUnavailable,
    Txn,
    UnknownOutcome,
    modified_at,
)
from logfleet.node.cluster.joining import join_cluster
from logfleet.node.cluster.registration import machine
from logfleet.node.cluster.registration.errors import IdTaken, LevelTooHigh
from logfleet.node.cluster.registration.registrar import Registrar, Registration
from logfleet.node.cluster.registration.states import Taken
from logfleet.store.loader import MetadataLoader
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids

from broker_image.tests.unit.node.world_rig import world

pytestmark = pytest.mark.asyncio
PATIENCE_S = 20
A, B = uuids.to_text(bytes([1]) * 16), uuids.to_text(bytes([2]) * 16)


@pytest_asyncio.fixture
async def store(tmp_path: Path):
    store = await SqliteStore.open(tmp_path / "m.db")
    yield store
    await store.close()


def value(incarnation: str = "first") -> BrokerValue:
    return BrokerValue(incarnation, (Endpoint("PLAINTEXT", "host", 9092),), "a", ("disk",))


class Fleet:
    """A registrar with its follower, and what it called."""

    def __init__(
        self,
        store: SqliteStore,
        broker_id: int = 1,
        taken_ms_max: int = 60_000,
        written: BrokerValue | None = None,
    ) -> None:
        self.store = store
        self.calls: asyncio.Queue[Registration | str] = asyncio.Queue()
        self.follower = MetadataLoader(store)
        self.registrar = Registrar(
            world(store),
            self.follower,
            broker_id,
            written or value(),
            on_registered=self.calls.put_nowait,
            on_lost=self.calls.put_nowait,
            taken_ms_max=taken_ms_max,
        )

    async def __aenter__(self) -> Self:
        self.tasks = [
            asyncio.ensure_future(self.follower.run()),
            asyncio.ensure_future(self.registrar.run()),
        ]
        return self

    async def __aexit__(self, *_) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    async def registered(self) -> Registration:
        """The next registration. Raises what the registrar ended by."""
        async with asyncio.timeout(PATIENCE_S):
            called = asyncio.ensure_future(self.calls.get())
            await asyncio.wait([called, self.tasks[1]], return_when=asyncio.FIRST_COMPLETED)
            if not called.done():
                called.cancel()
                self.tasks[1].result()
            call = await called
        assert isinstance(call, Registration)
        return call

    async def lost(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            call = await self.calls.get()
        assert isinstance(call, str)
        return call


async def register(
    store: SqliteStore, broker_id: int, written: BrokerValue, *, taken_ms_max: int = 60_000
) -> Registration:
    """Register, and keep the lease."""
    async with Fleet(store, broker_id, taken_ms_max, written) as fleet:
        return await fleet.registered()


async def level(store) -> FeaturesValue | None:
    held = await store.get(FEATURES.prefix)
    return None if held is None else msgspec.json.decode(held.value, type=FeaturesValue)


async def test_a_cluster_that_does_not_report_its_level_stays_at_1(store) -> None:
    await store.txn(Txn((), (Put(CLUSTER_ID.prefix, b"mine"),)))
    assert await join_cluster(store, "mine", level=2) == "mine"
    await register(store, 1, msgspec.structs.replace(value(), level=2))
    assert await level(store) == FeaturesValue(1)


async def test_a_broker_that_cannot_do_the_level_neither_joins_nor_registers(store) -> None:
    cluster_id = await join_cluster(store, None, level=2)
    before = await store.range("")
    for on_disk in (None, cluster_id):
        with pytest.raises(LevelTooHigh, match=rf"at level 2 .* up to 1: .*{__version__}"):
            await join_cluster(store, on_disk, level=1)
    with pytest.raises(LevelTooHigh):
        await register(store, 1, value())
    assert await store.range("") == before
    await register(store, 1, msgspec.structs.replace(value(), level=2))
    assert await level(store) == FeaturesValue(2, __version__)


async def test_a_raise_between_check_and_registration_is_not_missed(store, monkeypatch) -> None:
    await join_cluster(store, None, level=1)
    real, looks = store.get, 0

    async def get(key: str):
        nonlocal looks
        held = await real(key)
        looks += 1
        if looks == 1:
            await store.txn(Txn((), (Put(key, FEATURES.encode(FeaturesValue(2))),)))
        return held

    monkeypatch.setattr(store, "get", get)
    with pytest.raises(LevelTooHigh):
        await register(store, 1, value())
    assert await real("broker/1") is None


async def test_each_registration_undoes_a_raise_that_did_not_see_it(store) -> None:
    await join_cluster(store, None, level=2)
    seen = await store.get(FEATURES.prefix)
    assert seen is not None
    await register(store, 1, msgspec.structs.replace(value(), level=2))
    late = Txn((modified_at(FEATURES.prefix, seen.mod_revision),), (Put(FEATURES.prefix, b"{}"),))
    assert not (await store.txn(late)).succeeded


async def test_a_registration_reports_id_and_addresses(store) -> None:
    registered = await register(store, 1, value())
    held = await store.get("broker/1")
    assert held is not None
    assert registered.epoch == held.create_revision
    assert held.lease == registered.lease.id
    assert held.value == (
        b'{"incarnation":"first","listeners":[{"name":"PLAINTEXT","host":"host","port":9092,'
        b'"protocol":"PLAINTEXT"}],"rack":"a","directories":["disk"]}'
    )


async def test_a_taken_id_is_waited_for_and_then_given_up(store) -> None:
    await register(store, 1, value())
    with pytest.raises(IdTaken, match=r"broker id 1 .* incarnation first at PLAINTEXT://host:9092"):
        await register(store, 1, value("second"), taken_ms_max=50)
    held = await store.get("broker/1")
    assert held is not None
    assert b"first" in held.value


async def test_a_taken_id_is_taken_over_when_its_holder_is_gone(store, until) -> None:
    old = await register(store, 1, value())
    await register(store, 10, value("a neighbour whose key begins alike"))
    async with Fleet(store, written=value("second")) as fleet:
        await until(lambda: isinstance(fleet.registrar._machine.state, Taken))
        await old.lease.revoke()
        assert (await fleet.registered()).epoch > old.epoch


async def test_a_store_that_is_away_is_waited_for(store, monkeypatch) -> None:
    monkeypatch.setattr(machine, "UNAVAILABLE_PAUSE_MS", 1)
    real, failures = store.grant_lease, 3

    async def grant_lease(ttl_s: int):
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("away")
        return await real(ttl_s)

    monkeypatch.setattr(store, "grant_lease", grant_lease)
    assert (await register(store, 1, value())).broker_id == 1


async def test_a_lost_lease_is_reported_and_followed_by_a_new_registration(store) -> None:
    async with Fleet(store) as fleet:
        first = await fleet.registered()
        assert fleet.registrar.registration is first
        await first.lease.revoke()
        assert await fleet.lost()
        second = await fleet.registered()
        assert second.epoch > first.epoch


async def test_a_former_registration_that_still_stands_is_ended_first(store, monkeypatch) -> None:
    async with Fleet(store) as fleet:
        first = await fleet.registered()
        revoke = first.lease.revoke

        async def unavailable() -> None:
            monkeypatch.setattr(first.lease, "revoke", revoke)
            raise StoreUnavailable("away")

        monkeypatch.setattr(first.lease, "revoke", unavailable)
        fenced = FENCE.encode(FenceValue(first.epoch, FENCED))
        await store.txn(Txn((), (Put(FENCE.key(1), fenced),)))
        await fleet.lost()
        assert (await fleet.registered()).epoch > first.epoch


async def test_a_registration_that_vanished_is_lost_though_its_lease_lives(store) -> None:
    async with Fleet(store) as fleet:
        first = await fleet.registered()
        await store.txn(Txn(success=[Delete("broker/1")]))
        assert await fleet.lost() == "the registration is gone"
        assert (await fleet.registered()).lease.id != first.lease.id


async def test_a_fenced_broker_registers_again(store) -> None:
    async with Fleet(store) as fleet:
        first = await fleet.registered()
        stale = FENCE.encode(FenceValue(BrokerEpoch(first.epoch - 1), FENCED))
        await store.txn(Txn(success=[Put("fence/1", stale)]))
        fenced = FENCE.encode(FenceValue(first.epoch, FENCED))
        await store.txn(Txn(success=[Put("fence/1", fenced)]))
        assert await fleet.lost() == "the controller has fenced this broker"
        second = await fleet.registered()
        assert second.epoch > first.epoch
        await fleet.follower.until_revision(second.epoch)
        assert fleet.calls.empty(), "the fence of the former registration says nothing of this one"


async def test_leaving_unregisters_at_once(store) -> None:
    async with Fleet(store) as fleet:
        await fleet.registered()
    await fleet.registrar.unregister()
    assert await store.get("broker/1") is None
    await fleet.registrar.unregister()


async def test_a_registrar_ends_when_its_id_stays_taken(store) -> None:
    await register(store, 1, value("other"))
    async with Fleet(store, taken_ms_max=50) as fleet:
        with pytest.raises(IdTaken):
            await fleet.tasks[1]


async def test_an_update_is_written_into_the_registration_that_stands(store, until) -> None:
    async with Fleet(store) as fleet:
        registered = await fleet.registered()
        for offline in ({A: (0, 1)}, {A: (0, 1), B: (2,)}, {}):
            written = msgspec.structs.replace(value(), offline=offline)
            fleet.registrar.update(offline=written.offline)
            await until(lambda written=written: fleet.follower.image.brokers[1].value == written)
            held = await store.get(BROKER.key(1))
            assert held.create_revision == registered.epoch, "it is the same registration"
            assert held.lease == registered.lease.id
        assert fleet.calls.empty()
        await registered.lease.revoke()
        await fleet.lost()


async def test_what_the_store_refuses_to_take_of_it_ends_no_registration(
    store, until, monkeypatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_MS", (1, 60_000))
    transact, errors = store.txn, [StoreRefused("too large")] * 2

    async def refusing(txn: Txn):
        if errors:
            raise errors.pop()
        return await transact(txn)

    async with Fleet(store) as fleet:
        first = await fleet.registered()
        monkeypatch.setattr(store, "txn", refusing)
        written = msgspec.structs.replace(value(), offline={A: (0,)})
        fleet.registrar.update(offline=written.offline)
        await until(lambda: fleet.follower.image.brokers[1].value == written)
        assert fleet.registrar.registration is first
        assert fleet.registrar.refused.count == 2


async def test_an_update_is_in_the_next_registration_from_its_beginning(store, until) -> None:
    async with Fleet(store) as fleet:
        first = await fleet.registered()
        written = msgspec.structs.replace(value(), offline={A: (0,)})
        fleet.registrar.update(offline=written.offline)
        await until(lambda: fleet.follower.image.brokers[1].value == written)
        await first.lease.revoke()
        await fleet.lost()
        second = await fleet.registered()
        held = await store.get(BROKER.key(1))
        assert (held.create_revision, held.version) == (second.epoch, 1)
        assert held.value == BROKER.encode(written)


async def test_a_broker_that_is_fenced_as_it_stops_leaves_no_registration_behind(
    store, monkeypatch
) -> None:
    async with Fleet(store) as fleet:
        first = await fleet.registered()
        revoke, revoking = first.lease.revoke, asyncio.Event()

        async def hanging() -> None:
            revoking.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(first.lease, "revoke", hanging)
        fenced = FENCE.encode(FenceValue(first.epoch, FENCED))
        await store.txn(Txn((), (Put(FENCE.key(1), fenced),)))
        await fleet.lost()
        await revoking.wait()
        monkeypatch.setattr(first.lease, "revoke", revoke)
    await fleet.registrar.unregister()
    assert await store.get(BROKER.key(1)) is None


async def test_a_write_that_was_not_answered_is_found_and_followed_by_the_next(
    store, until, monkeypatch
) -> None:
    real = store.txn
    failing: list[Exception] = []

    async def txn(asked: Txn):
        result = await real(asked)
        if failing:
            raise failing.pop()
        return result

    monkeypatch.setattr(store, "txn", txn)
    async with Fleet(store) as fleet:
        await fleet.registered()
        for number in range(2):
            failing[:] = [UnknownOutcome("no answer")]
            written = msgspec.structs.replace(value(), offline={A: (number,)})
            fleet.registrar.update(offline=written.offline)
            await until(lambda written=written: fleet.follower.image.brokers[1].value == written)
            await until(lambda: not failing)
        assert fleet.calls.empty()


async def test_a_broker_that_leaves_announces_it_and_is_told_when_it_may_stop(store, until) -> None:
    other = msgspec.structs.replace(value("other"), leaving=False)
    async with Fleet(store, 2, written=other) as others, Fleet(store) as fleet:
        for number in (1, 2):
            registered = await (fleet if number == 1 else others).registered()
            active = FENCE.encode(FenceValue(registered.epoch, ACTIVE))
            await store.txn(Txn(success=[Put(FENCE.key(number), active)]))
        await until(lambda: len(fleet.follower.image.brokers) == 2)
        await until(lambda: all(each.is_active for each in fleet.follower.image.brokers.values()))
        leaving = asyncio.ensure_future(fleet.registrar.leave(PATIENCE_S))
        await until(lambda: fleet.follower.image.brokers[1].value.leaving)
        assert not leaving.done()
        await store.txn(Txn(success=[BROKER.delete(2)]))
        async with asyncio.timeout(PATIENCE_S):
            assert await leaving == "it has nothing more to hand over"
    assert await fleet.registrar.leave(PATIENCE_S) == "", "it does not run"


async def test_who_waits_to_leave_is_told_when_the_registrar_ends(store, until) -> None:
    async with Fleet(store, 2, written=value("other")) as others, Fleet(store) as fleet:
        await others.registered()
        registered = await others.store.get(BROKER.key(2))
        assert registered is not None
        active = FENCE.encode(FenceValue(BrokerEpoch(registered.create_revision), ACTIVE))
        await store.txn(Txn(success=[Put(FENCE.key(2), active)]))
        await fleet.registered()
        await until(lambda: 2 in fleet.follower.image.brokers)
        await until(lambda: fleet.follower.image.brokers[2].is_active)
        leaving = asyncio.ensure_future(fleet.registrar.leave(PATIENCE_S))
        await until(lambda: fleet.follower.image.brokers[1].value.leaving)
    assert await leaving == ""


async def test_a_bug_in_a_call_to_the_store_ends_the_registrar(store, monkeypatch) -> None:
    async def broken(_key: str) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(store, "get", broken)
    async with Fleet(store) as fleet:
        with pytest.raises(ValueError, match="a bug"):
            await fleet.tasks[1]
