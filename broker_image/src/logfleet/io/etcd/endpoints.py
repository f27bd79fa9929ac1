"""Connections to the members of an etcd cluster, one channel each.

When the current member fails the next one is used. One gRPC channel over all addresses is not
enough: its balancer takes a connected TCP socket for a live server, so that a frozen first member
stops every write. So each address has its own channel, each call a deadline, and a call that gets
no response makes the next member the current one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import msgspec
import structlog

from logfleet.io.etcd.shim import stubs
from logfleet.metadata.store import LeaseNotFound, StoreRefused, StoreUnavailable, UnknownOutcome

RPC_TIMEOUT_S = 1.0
"""A response takes milliseconds; etcd's own election, during which a member cannot respond,
about a second."""
PATIENCE_S = 5.0
"""Time after which a repeatable call gives up: long enough for two elections of etcd."""
ROUND_PAUSE_S = 0.1
MAKING_ROOM = (
    "nothing of the cluster can change until etcd has room: compact and defragment it or raise "
    "--quota-backend-bytes, then `etcdctl alarm disarm`"
)
CHANNEL_OPTIONS = (
    # Not below 5 s: etcd (--grpc-keepalive-min-time) disconnects clients that ping more often.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    # Also the limit of one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # On Kubernetes a restarted member has another address. By default its name is looked up once in
    # 30 s, mostly too early (grpc issue #12295), and a query may wait 120 s for its response even
    # if only one name server of several is gone. c-ares asks the next one after 2 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.dns_ares_query_timeout", 5_000),
    # Otherwise channels to one address share a connection: the lease thread's and the loop's.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

T = TypeVar("T")
log = structlog.get_logger(__name__)


class NoResponse(Exception):
    """The member did not respond, or cannot now. Whether it carried out the request is unknown."""


class Compacted(Exception):
    """etcd has compacted the requested history."""


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files: the trusted CA, and our own certificate and key (both or neither)."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The gRPC credentials from these files. Raises StoreRefused if one cannot be read."""
        try:
            return grpc.ssl_channel_credentials(
                self.ca.read_bytes(),
                self.key.read_bytes() if self.key else None,
                self.certificate.read_bytes() if self.certificate else None,
            )
        except OSError as error:
            raise StoreRefused(f"TLS to etcd: {error}") from error


class Addresses(msgspec.Struct, frozen=True):
    """Addresses of the members: host:port, either all over TLS or none."""

    targets: tuple[str, ...]
    tls: TlsFiles | None = None

    @classmethod
    def parse(cls, endpoints: Sequence[str], tls: TlsFiles | None = None) -> "Addresses":
        """Parse `host:port`, `http://host:port` or `https://host:port`.

        Raises ValueError if that fails.
        """
        if not endpoints:
            raise ValueError("no etcd endpoint is given")
        targets = []
        for endpoint in endpoints:
            scheme, _, target = endpoint.strip().rstrip("/").rpartition("://")
            host, _, port = target.rpartition(":")
            if scheme not in {"", "http", "https"} or not host or not port.isdecimal():
                raise ValueError(f"etcd endpoint {endpoint!r} is not http(s)://host:port")
            if scheme == "http" and tls is not None:
                raise ValueError(f"etcd endpoint {endpoint!r} is without TLS, but a CA is given")
            if scheme == "https" and tls is None:
                raise ValueError(
                    f"etcd endpoint {endpoint!r} needs a CA (logfleet.etcd.ca.location)"
                )
            targets.append(target)
        return cls(tuple(targets), tls)


class EtcdMember:
    """One member of the cluster: its channel and the stubs on it."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.target = target
        self.channel = (
            grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
            if credentials is not None
            else grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        )
        self.kv = stubs.KVStub(self.channel)
        self.watch = stubs.WatchStub(self.channel)
        self.lease = stubs.LeaseStub(self.channel)

    async def connected(self) -> None:
        """Wait for the connection. Raises NoResponse if none is made within RPC_TIMEOUT_S."""
        try:
            async with asyncio.timeout(RPC_TIMEOUT_S):
                while (state := self.channel.get_state(True)) is not grpc.ChannelConnectivity.READY:
                    if state in {
                        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                        grpc.ChannelConnectivity.SHUTDOWN,
                    }:
                        raise NoResponse(f"{self.target}: no connection")
                    await self.channel.wait_for_state_change(state)
        except TimeoutError:
            raise NoResponse(f"{self.target}: no connection") from None


class Members:
    """All members, one of them current. To be created on the loop that uses it."""

    def __init__(self, addresses: Addresses, first: int = 0) -> None:
        credentials = addresses.tls.credentials() if addresses.tls else None
        self._members = [EtcdMember(target, credentials) for target in addresses.targets]
        self._current = first % len(self._members)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def current(self) -> EtcdMember:
        return self._members[self._current]

    def stay_connected(self) -> None:
        """Connect to all members now.

        When the current one fails, there may be no name server left to find the others.
        """
        for member in self._members:
            member.channel.get_state(try_to_connect=True)

    def rotate(self, failed: EtcdMember) -> None:
        """Make the next member current, unless another call has already moved on from `failed`."""
        if self.current is failed:
            self._current = (self._current + 1) % len(self._members)

    async def repeat(
        self, call: Callable[[EtcdMember], Any], request: object, patience_s: float | None = None
    ) -> Any:
        """The response of the first member that gives one. For requests that may be repeated.

        call: picks the stub's method, as in `lambda member: member.kv.Range`. Raises
        StoreUnavailable after `patience_s` (PATIENCE_S), and what `ask` raises except NoResponse.
        """
        give_up_s = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        attempts = 0
        while True:
            member = self.current
            try:
                return await self.ask(member, call, request)
            except NoResponse as error:
                self.rotate(member)
                if time.monotonic() >= give_up_s:
                    raise StoreUnavailable(f"etcd: {error}") from error
            attempts += 1
            if attempts % len(self._members) == 0:
                await self.pause(ROUND_PAUSE_S)

    async def once(self, call: Callable[[EtcdMember], Any], request: object) -> Any:
        """The response to a request that must not be repeated blindly.

        It is sent once, over a connection that already exists: without one for PATIENCE_S nothing
        is sent and StoreUnavailable raised. Raises UnknownOutcome if it was sent and no response
        came.
        """
        give_up_s = time.monotonic() + PATIENCE_S
        attempts = 0
        while True:
            self._check_open()
            member = self.current
            try:
                await self._unless_closed(member.connected())
                break
            except NoResponse as error:
                self.rotate(member)
                if time.monotonic() >= give_up_s:
                    raise StoreUnavailable(f"etcd: {error}") from error
            attempts += 1
            if attempts % len(self._members) == 0:
                await self.pause(ROUND_PAUSE_S)
        try:
            return await self.ask(member, call, request)
        except NoResponse as error:
            self.rotate(member)
            raise UnknownOutcome(f"etcd: {error}") from error

    async def ask(
        self, member: EtcdMember, call: Callable[[EtcdMember], Any], request: object
    ) -> Any:
        """Send a request to one member once.

        Raises NoResponse, Compacted, LeaseNotFound, StoreRefused.
        """
        self._check_open()
        try:
            return await self._unless_closed(call(member)(request, timeout=RPC_TIMEOUT_S))
        except grpc.aio.AioRpcError as error:
            if _is_full(error):
                log.critical("etcd_database_full", member=member.target, hint=MAKING_ROOM)
            raise translate_error(error, member.target) from error

    async def pause(self, seconds: float) -> None:
        """Return after that time, or sooner at `close`."""
        await asyncio.wait([self.closed], timeout=seconds)

    async def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
            for member in self._members:
                await member.channel.close()

    def _check_open(self) -> None:
        if self.closed.done():
            raise StoreUnavailable("the metadata store is closed")

    async def _unless_closed(self, response: Awaitable[T]) -> T:
        """Raise StoreUnavailable instead of gRPC's CancelledError when the channel is closed."""
        try:
            return await response
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.closed.done() and task is not None and not task.cancelling():
                self._check_open()
            raise


_CANNOT_NOW = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,  # a TLS connection broken by a restart
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
}


def _is_full(error: grpc.RpcError) -> bool:
    """Whether the database has reached its quota (alarm NOSPACE); reads and existing leases go on.

    etcd refuses most writes for it before they are proposed, but the first ones after they were
    applied (quotaApplierV3).
    """
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and (
        "database space exceeded" in (error.details() or "")
    )


def translate_error(error: grpc.RpcError, target: str) -> Exception:
    """Translate an error of gRPC (texts: etcd's api/v3rpc/rpctypes/error.go)."""
    code, text = error.code(), f"{target}: {error.details() or error.code().name.lower()}"
    if code in _CANNOT_NOW or _is_full(error):
        return NoResponse(text)
    if code is grpc.StatusCode.NOT_FOUND and "lease" in text:
        return LeaseNotFound(text)
    if code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in text:
        return Compacted(text)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "too many requests" in text:
        return StoreUnavailable(f"etcd: {text}")
    return StoreRefused(f"etcd: {text}")
