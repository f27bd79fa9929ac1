"""A metadata store that refuses one kind of write to a broker, which lives on without it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata import attempts
from logfleet.metadata.kinds.brokers import DIRECTORIES
from logfleet.metadata.kinds.cluster import RECEIPT
from logfleet.metadata.kinds.topics import DELETED
from logfleet.metadata.store import StoreRefused, Txn, TxnResult
from logfleet.node.broker import Broker
from logfleet.node.partitions import local_partitions
from logfleet.store import refused_writes
from structlog.testing import capture_logs

from broker_image.tests.unit.node.broker_rig import config, create_topic
from broker_image.tests.unit.node.partitions.topic_rig import append, delete_topic, led, offsets

pytestmark = pytest.mark.asyncio


class RefusingStore(SqliteStore):
    """Refuses the broker's writes under `prefix`, not the controller's. attempts: how many."""

    prefix = ""
    attempts = 0

    async def txn(self, txn: Txn) -> TxnResult:
        written = [getattr(each, "key", "") for each in txn.success]
        by_controller = any(key.startswith(RECEIPT.prefix) for key in written)
        if self.prefix and not by_controller and written[0].startswith(self.prefix):
            self.attempts += 1
            raise StoreRefused("etcdserver: permission denied")
        return await super().txn(txn)


@asynccontextmanager
async def running(
    path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str = ""
) -> AsyncIterator[tuple[Broker, RefusingStore, list[Any]]]:
    """A broker, its store, and what is logged."""
    monkeypatch.setattr(attempts, "REFUSED_MS", (10, 60_000))
    monkeypatch.setattr(local_partitions, "TRY_AGAIN_S", 0.01)
    store = await RefusingStore.open(path / "metadata")
    assert isinstance(store, RefusingStore)
    store.prefix = prefix

    async def opened(*_: object) -> RefusingStore:
        return store

    with capture_logs() as logs:
        async with Broker(config(path), open_store=opened) as broker:
            yield broker, store, logs


def refusals(logs: list[Any]) -> list[Any]:
    return [row for row in logs if row["event"] == "metadata_write_refused"]


async def test_a_deletion_that_cannot_be_confirmed_stops_nothing_else(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as (broker, store, logs):
        await create_topic(broker, "t")
        store.prefix = DELETED.prefix
        await delete_topic(broker)
        await until(lambda: store.attempts >= 3)
        await create_topic(broker, "t")
        append(led(broker), 5)
        assert await offsets(broker, until) == (0, 5)
        assert broker.image.deleted
        assert broker.rooms.hosting.local.refused_writes >= 3
        store.prefix = ""
        await until(lambda: not broker.image.deleted)
        assert broker.failure is None
        (row,) = refusals(logs)
        assert (row["log_level"], row["reason"]) == ("error", "etcdserver: permission denied")


async def test_without_a_record_of_its_directories_a_broker_makes_no_logs_and_waits(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch, DIRECTORIES.prefix) as (broker, store, logs):
        await create_topic(broker, "t")
        await until(lambda: store.attempts >= 3)
        assert broker.rooms.partitions.get("t", 0) is None
        assert not (tmp_path / "data" / "t-0").exists()
        store.prefix = ""
        await until(lambda: broker.rooms.partitions.get("t", 0) is not None)
        assert broker.failure is None
        assert len(refusals(logs)) == 1


async def test_pauses_between_attempts_grow() -> None:
    refused = refused_writes.RefusedWrites()
    error = StoreRefused("no")
    pauses = [refused.refused("one", error) for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert refused.refused("another", error) == 1
    assert refused.is_waiting("one")
    assert not refused.is_waiting("a third")
    refused.accepted("one")
    assert not refused.is_waiting("one")
    assert refused.refused("one", error) == 1
    assert refused.count == 10
