"""An etcd user whose role lacks one permission: that one write is refused, the watch and the lease go on."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme
from logfleet.io.etcd.endpoints import Addresses, TlsFiles
from logfleet.io.etcd.shim import rpc, stubs
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata import attempts
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.kinds.topics import PARTITION, PartitionValue
from logfleet.metadata.store import Get, Put, StoreRefused, Txn, absent
from logfleet.store.loader import MetadataLoader
from logfleet.store.refused_writes import RefusedWrites, settle_when_accepted
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

from broker_image.tests.contract.metadata_store import PATIENCE_S, write
from broker_image.tests.etcd.leases import kept_until
from e2e.harness.etcd import EtcdBinary, EtcdServer, TlsPaths, etcd_server

pytestmark = pytest.mark.asyncio
PREFIX = "/logfleet/test/"
KEY = PARTITION.key((uuids.from_text("AAAAAAAAAAAAAAAAAAAAAQ"), 0))


class Certificates:
    """Of one CA; etcd takes the common name of a client's for its user."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ca = folder, trustme.CA()
        self.ca = folder / "ca.crt"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, common_name: str | None = None) -> TlsFiles:
        issued = self._ca.issue_cert("127.0.0.1", "localhost", common_name=common_name)
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return TlsFiles(self.ca, certificate, key)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def server(binary: EtcdBinary, tmp_path: Path, certificates: Certificates) -> Iterator[EtcdServer]:
    files = certificates.issue("server")
    assert files.certificate is not None
    assert files.key is not None
    with etcd_server(binary, tmp_path, TlsPaths(files.ca, files.certificate, files.key)) as running:
        yield running


@asynccontextmanager
async def administrator(server: EtcdServer, certificates: Certificates) -> AsyncIterator[Any]:
    credentials = certificates.issue("root", "root").credentials()
    target = server.endpoint.rpartition("/")[2]
    async with grpc.aio.secure_channel(target, credentials) as channel:
        yield stubs.AuthStub(channel)


async def grant(auth: Any, first: str, end: str) -> None:
    """The broker may read and write the keys from `first` on, before `end`."""
    request = rpc.AuthRoleGrantPermissionRequest(name="broker")
    request.perm.permType = request.perm.READWRITE
    request.perm.key, request.perm.range_end = first.encode(), end.encode()
    await auth.RoleGrantPermission(request)


async def restrict(auth: Any) -> None:
    """The broker may read and write all but partitions, which it may read."""
    for user in ("root", "broker"):
        await auth.UserAdd(rpc.AuthUserAddRequest(name=user, password=user))
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name=user))
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=user, role=user))
    await grant(auth, PREFIX, f"{PREFIX}part/")
    await grant(auth, f"{PREFIX}part0", "/logfleet/test0")
    request = rpc.AuthRoleGrantPermissionRequest(name="broker")
    request.perm.permType = request.perm.READ
    request.perm.key, request.perm.range_end = PREFIX.encode(), b"/logfleet/test0"
    await auth.RoleGrantPermission(request)
    await auth.AuthEnable(rpc.AuthEnableRequest())


async def test_a_write_that_is_refused_takes_nothing_else_with_it(
    server: EtcdServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_MS", (50, 60_000))
    async with administrator(server, certificates) as auth, asyncio.timeout(PATIENCE_S):
        await restrict(auth)
        addresses = Addresses.parse([server.endpoint], certificates.issue("broker", "broker"))
        store, refused = EtcdStore(addresses, PREFIX), RefusedWrites()
        lease = await store.grant_lease(6)
        follower = MetadataLoader(store)
        following = asyncio.ensure_future(follower.run())
        with pytest.raises(StoreRefused, match="permission denied"):
            await write(store, Put(KEY, b"{}"))
        state = PARTITION.encode(
            PartitionValue((1,), ((1, BrokerEpoch(1)),), 1, LeaderEpoch(0), PartitionEpoch(0), 1)
        )
        txn = Txn((absent(KEY),), (Put(KEY, state),), (Get(KEY),))
        writing = asyncio.ensure_future(settle_when_accepted(store, txn, refused, "ISR"))
        while refused.count < 2:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
        last = await write(store, Put(CLUSTER_ID.prefix, b"id", lease.id))
        await follower.until_revision(last.revision)
        await kept_until(lease, lease.deadline_s)
        assert not writing.done()
        await grant(auth, f"{PREFIX}part/", f"{PREFIX}part0")
        result = await writing
        assert result.succeeded
        await follower.until_revision(result.revision)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await store.close()
