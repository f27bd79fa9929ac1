import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata import attempts
from logfleet.metadata.store import (
    Get,
    Put,
    Txn,
    UnknownOutcome,
    absent,
)
from logfleet.store.claims import create_once, settle

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
    monkeypatch.setattr(attempts, "UNANSWERED_MS", (1, 2_000))
    store = await Unsteady.open(tmp_path / "m.db")
    assert isinstance(store, Unsteady)
    store.errors = []
    yield store
    await store.close()


async def test_an_answer_is_waited_for_until_time_is_up(store) -> None:
    store.errors = [(UnknownOutcome("no answer"), False)] * 10_000
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await settle(store, Txn([absent("a")], [Put("a", b"")], [Get("a")]))


async def test_what_is_created_once_stays(store) -> None:
    assert await create_once(store, "cluster/id", b"one") == b"one"
    assert await create_once(store, "cluster/id", b"two") == b"one"
