"""The stage before the service, shown with one that asks for a password."""

from collections.abc import Awaitable
from pathlib import Path

import pytest
from logfleet.auth.principal import ANONYMOUS, Principal
from logfleet.net.connection import CloseConnection, Encoded, Service
from logfleet.net.peer import Parked, Peer

from broker_image.tests.unit.net.connection_rig import framed, running

pytestmark = pytest.mark.asyncio
ALICE = Principal("User", "alice")


class Gate:
    """Two frames are the gate's: a greeting and the password. The service gets those behind."""

    def __init__(self, peer: Peer, certificate: bytes | None, service: Service) -> None:
        assert certificate is None
        self._service = service
        self._steps = [b"hello", b"secret"]
        assert peer.principal == ANONYMOUS

    def __call__(self, peer: Peer, frame: memoryview) -> Encoded | Awaitable[Encoded] | Parked:
        if not self._steps:
            return self._service(peer, frame)
        if bytes(frame) != self._steps.pop(0):
            raise CloseConnection("wrong password")
        if not self._steps:
            peer.principal = ALICE
        return framed(b"go on")


async def test_a_client_is_anonymous_unless_a_listener_asks(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\1e", b"\0\1e")
        assert [await client.receive() for _ in range(2)] == [b"\0\1e"] * 2
        assert [peer.principal for peer in rig.service.peers] == [ANONYMOUS] * 2


async def test_the_service_gets_frames_once_the_client_has_signed_in(tmp_path: Path) -> None:
    async with running(tmp_path, sign_in=Gate) as rig, rig.client() as client:
        client.send(b"hello", b"secret", b"\0\1e")
        assert [await client.receive() for _ in range(2)] == [b"go on"] * 2
        assert await client.receive() == b"\0\1e"
        assert rig.service.seen == [b"\0\1e"]
        assert rig.service.peers[0].principal == ALICE


async def test_each_connection_is_asked(tmp_path: Path) -> None:
    async with running(tmp_path, sign_in=Gate) as rig:
        async with rig.client() as client:
            client.send(b"hello", b"secret", b"\0\1e")
            assert [await client.receive() for _ in range(3)][-1] == b"\0\1e"
        async with rig.client() as client:
            client.send(b"hello", b"guess", b"\0\1e")
            assert await client.receive() == b"go on"
            assert await client.is_closed_by_broker()
        assert len(rig.service.seen) == 1


async def test_who_does_not_sign_in_reaches_no_service(tmp_path: Path) -> None:
    async with running(tmp_path, sign_in=Gate) as rig, rig.client() as client:
        client.send(b"\0\1e", b"\0\1e")
        assert await client.is_closed_by_broker()
        assert rig.service.seen == []
