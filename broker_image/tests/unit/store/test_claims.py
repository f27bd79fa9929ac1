import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.store import (
    Get,
    LeaseNotFound,
    Put,
    StoreUnavailable,
    Txn,
    UnknownOutcome,
    absent,
)
from logfleet.store import pauses
from logfleet.store.claims import claim, create_once, settle

pytestmark = pytest.mark.asyncio


class Unsteady(SqliteStore):
    """Answers the next transactions by `errors`; for an UnknownOutcome, `applied` is the truth."""

    errors: list[tuple[Exception, bool]]

    async def txn(self, txn: Txn):
        if not self.errors:
            return await super().txn(txn)
        error, applied = self.errors.pop(0)
        if applied:
            await super().txn(txn)
        raise error


@pytest_asyncio.fixture
async def store(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(pauses, "REPEATED_S", (0.001, 2.0))
    store = await Unsteady.open(tmp_path / "m.db")
    assert isinstance(store, Unsteady)
    store.errors = []
    yield store
    await store.close()


@pytest.mark.parametrize("applied", [[], [False], [True], [False, True], [True, False]])
async def test_a_claim_with_unknown_outcomes_is_ours_exactly_once(store, applied) -> None:
    lease = await store.grant_lease(3)
    store.errors = [(UnknownOutcome("no answer"), each) for each in applied]
    held = await claim(store, "ctl", b"me", lease)
    assert held == await store.get("ctl")
    assert (held.lease, held.version) == (lease.id, 1)


async def test_a_claim_that_comes_second_learns_who_holds_it(store) -> None:
    first, second = await store.grant_lease(3), await store.grant_lease(3)
    held = await claim(store, "ctl", b"one", first)
    store.errors = [(UnknownOutcome("no answer"), False), (StoreUnavailable("away"), False)]
    assert await claim(store, "ctl", b"two", second) == held


async def test_a_claim_with_an_ended_lease_is_refused(store) -> None:
    lease = await store.grant_lease(3)
    await lease.revoke()
    with pytest.raises(LeaseNotFound):
        await claim(store, "ctl", b"me", lease)


async def test_an_answer_is_waited_for_until_time_is_up(store) -> None:
    store.errors = [(UnknownOutcome("no answer"), False)] * 10_000
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await settle(store, Txn([absent("a")], [Put("a", b"")], [Get("a")]))


async def test_what_is_created_once_stays(store) -> None:
    assert await create_once(store, "cluster/id", b"one") == b"one"
    assert await create_once(store, "cluster/id", b"two") == b"one"
