"""An etcd whose database has reached its quota: it answers reads and keeps leases, and takes writes again once it has room."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc.aio
import pytest
from logfleet.controller.running.loop import ControllerLoop
from logfleet.io.clock import now_ms
from logfleet.io.etcd.shim import rpc, stubs
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.kinds.cluster import CLUSTER_ID, ControllerValue
from logfleet.metadata.store import Get, Put, StoreUnavailable, Txn, absent
from logfleet.store.claims import settle, settle_or_recognise
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions
from structlog.testing import capture_logs

from broker_image.tests.contract.metadata_store import PATIENCE_S, write
from broker_image.tests.unit.controller.running.controller_rig import nobody_answers
from e2e.harness.etcd import EtcdServer

pytestmark = pytest.mark.asyncio
Row = MutableMapping[str, Any]


@asynccontextmanager
async def no_room(server: EtcdServer) -> AsyncIterator[None]:
    """Raise the alarm that the quota raises (etcd's documentation, Maintenance: space quota); disarm it at the end."""
    async with grpc.aio.insecure_channel(server.endpoint.rpartition("/")[2]) as channel:
        maintenance = stubs.MaintenanceStub(channel)
        member = (await maintenance.Status(rpc.StatusRequest())).header.member_id

        async def alarm(action: int) -> None:
            await maintenance.Alarm(
                rpc.AlarmRequest(action=action, memberID=member, alarm=rpc.NOSPACE)
            )

        await alarm(rpc.AlarmRequest.ACTIVATE)
        yield
        await alarm(rpc.AlarmRequest.DEACTIVATE)


def refuse_afterwards(store: EtcdStore) -> None:
    """The next transaction is applied, then refused, as when it comes upon the quota first (etcd's quotaApplierV3.Txn)."""
    etcd = store._members.current.kv
    transact = etcd.Txn

    async def refused(request: Any, **options: float) -> None:
        etcd.Txn = transact
        await transact(request, **options)
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(),
            "etcdserver: mvcc: database space exceeded",
        )

    etcd.Txn = refused


def told(logs: Sequence[Row], event: str) -> list[Row]:
    return [row for row in logs if row["event"] == event]


async def until(condition: Callable[[], object], running: "asyncio.Future[Any]") -> None:
    """Wait for what is asked of the store, by something that must not end before."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            assert not running.done(), running
            await asyncio.sleep(0)


async def test_writes_wait_for_room(server: EtcdServer, store: EtcdStore) -> None:
    await write(store, Put("a", b"1"))
    with capture_logs() as logs:
        async with no_room(server):
            with pytest.raises(StoreUnavailable, match="database space exceeded"):
                await store.grant_lease(10)
            writing = asyncio.ensure_future(settle(store, Txn(success=(Put("a", b"2"),))))
            await until(lambda: told(logs, "metadata_write_repeated"), writing)
            held = await store.get("a")
            assert held is not None
            assert held.value == b"1"
        async with asyncio.timeout(PATIENCE_S):
            assert (await writing).succeeded
    rows = told(logs, "etcd_database_full")
    assert {row["log_level"] for row in rows} == {"critical"}
    assert "alarm disarm" in rows[0]["hint"]


async def test_a_write_refused_for_want_of_room_may_have_been_done(store: EtcdStore) -> None:
    refuse_afterwards(store)
    mine = Txn([absent("a")], [Put("a", b"mine")], [Get("a")])
    settled = await settle_or_recognise(store, mine)
    assert not settled.result.succeeded
    assert settled.result.reads == (await store.get("a"),)
    assert settled.unanswered, "so that what was found there may be taken for its own work"


async def test_a_broker_stands_for_controller_until_there_is_room(
    server: EtcdServer, store: EtcdStore
) -> None:
    follower = MetadataLoader(store)
    loop = ControllerLoop(
        store,
        follower,
        ControllerValue(1, "incarnation"),
        {},
        Decisions(1, now_ms),
        query_log_ends=nobody_answers,
    )
    await write(store, Put(CLUSTER_ID.prefix, b"id"))
    following = asyncio.ensure_future(follower.run())
    with capture_logs() as logs:
        async with no_room(server):
            controlling = asyncio.ensure_future(loop.run())
            await until(lambda: told(logs, "controller_election_delayed"), controlling)
        await until(lambda: loop.is_controller, controlling)
    for task in (controlling, following):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
