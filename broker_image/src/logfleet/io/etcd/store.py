"""The MetadataStore of a fleet, on etcd."""

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

from logfleet.io.clock import boot_s
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer
from logfleet.io.etcd.endpoints import Addresses, Compacted, Members
from logfleet.io.etcd.lease import TICK_S, EtcdLease, LeaseKeeper
from logfleet.io.etcd.messages import EtcdCodec
from logfleet.io.etcd.shim import rpc
from logfleet.io.etcd.watch import follow
from logfleet.metadata.store import (
    KeyValue,
    LeaseNotFound,
    Snapshot,
    StoreReplaced,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    WatchBatch,
    check_txn,
)

PAGE_KEYS_MAX = 1_000
"""Keys per page of a range: decoding one stays far below 5 ms on the loop."""
REVOKE_PATIENCE_S = 1.0
"""Time for which a revocation is retried.

Short, as it only spares others the wait for the lease's end, a few seconds, and is often done while
stopping.
"""
LISTINGS_MAX = 3
"""Number of times that a listing is started again because its revision was compacted between two
pages.
"""


class EtcdStore:
    """The keys of one cluster in etcd.

    Created and used on one loop; nothing is sent before the first call. prefix: of every key, ends
    with a slash. timer: kills this process if it cannot run until after the first deadline of its
    leases (see `lease`).
    """

    def __init__(self, addresses: Addresses, prefix: str, timer: DeadMansTimer = NO_TIMER) -> None:
        first = random.randrange(len(addresses.targets))
        self._members = Members(addresses, first)
        self._keeper = LeaseKeeper(addresses, first, timer)
        self._codec = EtcdCodec(prefix)
        self._cluster_id = 0
        self._newest_revision = 0
        self._ticking: asyncio.TimerHandle | None = None

    async def get(self, key: str) -> KeyValue | None:
        return self._codec.first(await self._read(self._codec.get_request(key)))

    async def range(self, prefix: str) -> Snapshot:
        for _ in range(LISTINGS_MAX):
            try:
                return await self._list(prefix)
            except Compacted:
                continue
        raise StoreUnavailable("etcd: the history is compacted faster than the keys can be listed")

    async def _list(self, prefix: str) -> Snapshot:
        items: list[KeyValue] = []
        after, revision = b"", 0
        while True:
            request = self._codec.range_request(prefix, after, revision, PAGE_KEYS_MAX)
            response = await self._read(request)
            revision = revision or response.header.revision
            items += map(self._codec.key_value, response.kvs)
            if not response.more:
                return Snapshot(revision, tuple(items))
            after = response.kvs[-1].key

    async def _read(self, request: Any) -> Any:
        """A linearizable range.

        Raises StoreReplaced if its revision is older than one that was seen before the request.
        """
        newest = self._newest_revision
        response = await self._members.repeat(lambda member: member.kv.Range, request)
        self._check_header(response.header)
        if response.header.revision < newest:
            raise StoreReplaced(
                f"etcd is at revision {response.header.revision}, it was at {newest}"
            )
        return response

    async def txn(self, txn: Txn) -> TxnResult:
        check_txn(txn)
        request = self._codec.txn_request(txn)
        response = await self._members.once(lambda member: member.kv.Txn, request)
        self._check_header(response.header)
        return self._codec.txn_result(txn, response)

    async def grant_lease(self, ttl_s: int) -> EtcdLease:
        sent_s = boot_s()
        request = rpc.LeaseGrantRequest(TTL=ttl_s)
        try:
            response = await self._members.once(lambda member: member.lease.LeaseGrant, request)
        except UnknownOutcome as error:  # if it was granted, it expires unused
            raise StoreUnavailable(str(error)) from error
        self._check_header(response.header)
        lease = EtcdLease(response.ID, response.TTL, sent_s + response.TTL, revoke=self._revoke)
        self._keeper.keep(lease)
        self._tick()
        return lease

    async def _revoke(self, lease: EtcdLease) -> None:
        self._keeper.drop(lease)
        request = rpc.LeaseRevokeRequest(ID=lease.id)
        try:
            await self._members.repeat(
                lambda member: member.lease.LeaseRevoke, request, REVOKE_PATIENCE_S
            )
        except LeaseNotFound:
            pass
        finally:
            lease.end()

    def watch(
        self, prefix: str = "", *, after_revision: int | None = None
    ) -> AsyncGenerator[Snapshot | WatchBatch, None]:
        return follow(
            self._members,
            self._codec,
            prefix,
            after_revision,
            snapshot_of=self.range,
            confirm=self._confirm,
            check_header=self._check_header,
        )

    async def compact(self, revision: int) -> None:
        request = rpc.CompactionRequest(revision=revision)
        try:
            await self._members.repeat(lambda member: member.kv.Compact, request)
        except Compacted:
            return

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        await self._keeper.stop()
        await self._members.close()

    def _tick(self) -> None:
        """Report to the lease thread that this loop runs, and stay connected, now and every TICK_S.

        Started by the first lease.
        """
        if self._ticking is not None:
            self._ticking.cancel()
        self._keeper.tick()
        self._members.stay_connected()
        self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def _confirm(self) -> None:
        """Raises StoreReplaced if this is another store, even one with the same cluster id."""
        await self._read(self._codec.get_request(""))

    def _check_header(self, header: Any) -> None:
        if self._cluster_id and header.cluster_id != self._cluster_id:
            raise StoreReplaced(
                f"etcd cluster {header.cluster_id:x} answers where {self._cluster_id:x} was"
            )
        self._cluster_id = header.cluster_id
        self._newest_revision = max(self._newest_revision, header.revision)
