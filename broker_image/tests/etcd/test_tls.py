import datetime as dt
from pathlib import Path

import pytest
import trustme
from logfleet.io.etcd import endpoints
from logfleet.io.etcd.endpoints import Addresses, TlsFiles
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.store import Put, Snapshot, StoreRefused, StoreUnavailable, WatchBatch

from broker_image.tests.contract.metadata_store import soon, write
from broker_image.tests.etcd.leases import kept_until
from e2e.harness.etcd import EtcdBinary, TlsPaths, etcd_server
from e2e.lab.pki import EKS, MICROK8S, Style, Subject, make_authority, make_leaf, write_pair

pytestmark = pytest.mark.asyncio


def written(folder: Path, name: str, ca: trustme.CA) -> tuple[Path, Path]:
    issued = ca.issue_cert("127.0.0.1", "localhost")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for name in ("ours", "theirs"):
        ca = trustme.CA()
        paths[name] = tmp_path / f"{name}-ca.crt"
        ca.cert_pem.write_to_path(paths[name])
        paths[f"{name}-crt"], paths[f"{name}-key"] = written(tmp_path, name, ca)
    return paths


@pytest.fixture
def endpoint(binary: EtcdBinary, tmp_path: Path, tls):
    files = TlsPaths(tls["ours"], tls["ours-crt"], tls["ours-key"])
    with etcd_server(binary, tmp_path, files) as server:
        assert server.endpoint.startswith("https://")
        yield server.endpoint


async def test_calls_watches_and_leases_go_over_mutual_tls(endpoint, tls) -> None:
    files = TlsFiles(tls["ours"], tls["ours-crt"], tls["ours-key"])
    store = EtcdStore(Addresses.parse([endpoint], files), "/logfleet/test/")
    lease = await store.grant_lease(6)
    await write(store, Put("a", b"", lease.id))
    watch = store.watch()
    assert isinstance(await soon(watch), Snapshot)
    await write(store, Put("b", b""))
    assert isinstance(await soon(watch), WatchBatch)
    await kept_until(lease, lease.deadline_s)
    await watch.aclose()
    await lease.revoke()
    await store.close()


@pytest.mark.parametrize("style", [EKS, MICROK8S])
async def test_an_authority_needs_no_more_than_those_of_kubernetes_have(
    binary: EtcdBinary, tmp_path: Path, style: Style
) -> None:
    """gRPC brings its own verifier (BoringSSL), which is not as strict as Python 3.13's."""
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(style, now)
    subject = Subject("both", "both", dns_names=("localhost",), ips=("127.0.0.1",))
    write_pair(tmp_path, "ca", authority.key, authority.certificate)
    write_pair(tmp_path, "both", *make_leaf(authority, subject, now))
    ca, certificate, key = (tmp_path / name for name in ("ca.crt", "both.crt", "both.key"))
    with etcd_server(binary, tmp_path, TlsPaths(ca, certificate, key)) as server:
        addresses = Addresses.parse([server.endpoint], TlsFiles(ca, certificate, key))
        store = EtcdStore(addresses, "/logfleet/test/")
        await write(store, Put("a", b""))
        await store.close()


@pytest.mark.parametrize("who", ["stranger", "nobody", "distrustful"])
async def test_without_mutual_trust_there_is_no_store(endpoint, tls, who, monkeypatch) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE_S", 0.3)
    files = {
        "stranger": TlsFiles(tls["ours"], tls["theirs-crt"], tls["theirs-key"]),
        "nobody": TlsFiles(tls["ours"]),
        "distrustful": TlsFiles(tls["theirs"], tls["ours-crt"], tls["ours-key"]),
    }[who]
    store = EtcdStore(Addresses.parse([endpoint], files), "/logfleet/test/")
    with pytest.raises(StoreUnavailable):
        await store.get("a")
    await store.close()


async def test_a_missing_file_is_named(tls, tmp_path: Path) -> None:
    addresses = Addresses.parse(["localhost:2379"], TlsFiles(tmp_path / "none.crt"))
    with pytest.raises(StoreRefused, match=r"none\.crt"):
        EtcdStore(addresses, "/logfleet/test/")
