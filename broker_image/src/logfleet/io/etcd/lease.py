"""Keeps leases alive from a thread of its own, by synchronous gRPC.

Not from the loop: one long step of it would let a healthy broker's lease expire. Not by a second
asyncio loop: grpc.aio shares one poller among loops (grpc issue #25364). Conversely, a broker whose
loop hangs must lose its lease, so the thread renews only while the loop ticks.

While etcd does not respond, the thread keeps trying, even past a lease's deadline: etcd lets no
lease expire while it has no leader, and grants all of them their full time again once it has one
(lessor.Promote). So a lease may outlive any outage of etcd. It is lost only when etcd says so.

A process that cannot run at all keeps its sockets open and its clients waiting. The keeper sets a
timer by which the kernel kills such a process GRACE_S after the first deadline of its leases (see
`dead_mans_timer`). It never kills a process whose loop runs: each tick sets the timer to a
time after the next tick. Once a deadline has passed, as during an outage of etcd, it disarms
the timer until the lease is renewed.

Members are asked in turn, each over a channel of its own that stays as long as its connection:
during an election of etcd nobody responds, and connecting to another member only then may need a
name server that failed together with the same zone.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from logfleet.io.clock import boot_s
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer
from logfleet.io.etcd.endpoints import CHANNEL_OPTIONS, Addresses, TlsFiles
from logfleet.io.etcd.shim import rpc, stubs
from logfleet.metadata.store import StoreRefused

TICK_S = 0.25
"""Interval at which the event loop reports to the thread that it runs."""
TICK_AGE_S_MAX = 2.0
"""Without a tick for this long the loop counts as hung: its leases are left to expire."""
GRACE_S = 0.5
"""Between the deadline of a lease and the kill of a process that does not run: etcd ends a lease a
little late, and a process that runs again by then keeps its leaderships."""
RETRY_S = 0.1
"""Pause before a retry while a lease can still be renewed in time."""
OVERDUE_RETRY_S = 0.25
"""Pause before a retry once a deadline has passed: etcd may be away for hours."""
AVOIDED_S = 10.0
"""A member that did not respond is tried after all others for this long."""
TIMEOUT_SHARE = 0.4
"""Timeout for one member, as a share of the time until the first deadline: with a lease of 3 s
0.8 s at first, then less, as others have not been tried yet."""
TIMEOUT_S_MIN, TIMEOUT_S_MAX = 0.2, 1.0
"""Bounds of that timeout. Past the deadline it is the longest one."""


class _MemberChannel:
    """A member's channel, created on first use. avoided_until_s: by boot_s."""

    def __init__(self, target: str, tls: TlsFiles | None) -> None:
        self._target = target
        self._tls = tls
        self._channel: Any = None
        self.avoided_until_s = 0.0

    def channel(self) -> Any:
        """The member's channel. Raises StoreRefused if the TLS files cannot be read."""
        if self._channel is None:
            self._channel = (
                grpc.secure_channel(self._target, self._tls.credentials(), options=CHANNEL_OPTIONS)
                if self._tls is not None
                else grpc.insecure_channel(self._target, options=CHANNEL_OPTIONS)
            )
        return self._channel

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class EtcdLease:
    """A lease of etcd, renewed by its store's thread. See logfleet.metadata.store.Lease."""

    def __init__(
        self, lease: int, ttl_s: int, deadline_s: float, *, revoke: Callable[["EtcdLease"], Any]
    ) -> None:
        self.id = lease
        self.ttl_s = ttl_s
        self.deadline_s = deadline_s  # written by the keeper's thread, read by the loop
        self._revoke = revoke
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

    async def lost(self) -> None:
        await self._ended.wait()

    async def revoke(self) -> None:
        await self._revoke(self)

    def end(self) -> None:
        """The lease has ended: wake the tasks that wait in `lost`. Call it on the lease's loop."""
        self._ended.set()

    def end_from_thread(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ended.set)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return


class LeaseKeeper:
    """Renews leases every third of their TTL, until each is dropped or ended by etcd, or `stop`.

    timer: kills this process if it cannot run until after the first deadline. The lock guards it
    like the leases, since the loop and the thread both set it.
    """

    def __init__(
        self, addresses: Addresses, first: int = 0, timer: DeadMansTimer = NO_TIMER
    ) -> None:
        self._members = deque(_MemberChannel(target, addresses.tls) for target in addresses.targets)
        self._members.rotate(-first)
        self._leases: dict[int, EtcdLease] = {}
        self._wakeup = threading.Condition()
        self._stopping = False
        self._ticked_s = boot_s()
        self._call: Any = None
        self._timer = timer
        self._thread = threading.Thread(target=self._run, name="etcd-leases", daemon=True)

    def keep(self, lease: EtcdLease) -> None:
        with self._wakeup:
            self._ticked_s = boot_s()
            self._leases[lease.id] = lease
            if not self._thread.is_alive() and not self._stopping:
                self._thread.start()
            self._wakeup.notify()

    def drop(self, lease: EtcdLease) -> None:
        with self._wakeup:
            self._leases.pop(lease.id, None)
            self._set_timer()

    def tick(self) -> None:
        """Report that the loop runs. The loop calls this every TICK_S."""
        with self._wakeup:
            self._ticked_s = boot_s()
            self._set_timer()

    async def stop(self) -> None:
        """End the thread. The leases are left to expire."""
        with self._wakeup:
            self._stopping = True
            self._set_timer()
            self._wakeup.notify()
            call = self._call
        if call is not None:
            call.cancel()
        if self._thread.is_alive():
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        not_before_s = 0.0
        try:
            while (leases := self._next(not_before_s)) is not None:
                not_before_s = self._turn(leases)
        finally:
            for member in self._members:
                member.close()

    def _next(self, not_before_s: float) -> list[EtcdLease] | None:
        """Wait until a lease is due and `not_before_s` (boot_s) has come.

        Returns all leases, None after `stop`. `keep` and `stop` may notify while nobody waits: what
        they change is checked before each wait.
        """
        with self._wakeup:
            while not self._stopping:
                leases = list(self._leases.values())
                if leases:
                    due_s = max(not_before_s, min(map(_due_s, leases)))
                    if (pause_s := due_s - boot_s()) <= 0:
                        return leases
                    self._wakeup.wait(pause_s)
                else:
                    self._wakeup.wait()
            return None

    def _turn(self, leases: list[EtcdLease]) -> float:
        """Renew the leases that are due.

        Returns the earliest time (boot_s) for the next attempt.
        """
        now_s = boot_s()
        due = [lease for lease in leases if _due_s(lease) <= now_s]
        if not due:
            return 0.0
        if now_s - self._ticked_s <= TICK_AGE_S_MAX and self._renew(due):
            return 0.0
        now_s = boot_s()
        is_overdue = now_s >= min(lease.deadline_s for lease in due)
        return now_s + (OVERDUE_RETRY_S if is_overdue else RETRY_S)

    def _renew(self, leases: list[EtcdLease]) -> bool:
        """Ask the next member, in one stream, to renew all of them; False if it did not respond."""
        requests = [rpc.LeaseKeepAliveRequest(ID=lease.id) for lease in leases]
        by_id = {lease.id: lease for lease in leases}
        sent_s = boot_s()
        left_s = min(lease.deadline_s for lease in leases) - sent_s
        timeout_s = TIMEOUT_S_MAX
        if left_s > 0:
            timeout_s = min(TIMEOUT_S_MAX, max(TIMEOUT_S_MIN, TIMEOUT_SHARE * left_s))
        member = self._next_member()
        try:
            call = stubs.LeaseStub(member.channel()).LeaseKeepAlive(
                iter(requests), timeout=timeout_s
            )
            self._call = call
            for _ in requests:
                response = next(call)
                lease = by_id[response.ID]
                if response.TTL > 0:
                    self._renewed(lease, sent_s + response.TTL)
                else:
                    self._lose(lease)
        except (grpc.RpcError, StopIteration, StoreRefused) as error:
            # StoreRefused: TLS files that cannot be read
            if _is_disconnected(error):
                # a new channel connects at once, gRPC's own retries come at growing intervals
                member.close()
            member.avoided_until_s = boot_s() + AVOIDED_S
            return False
        finally:
            self._call = None
        call.cancel()
        return True

    def _renewed(self, lease: EtcdLease, deadline_s: float) -> None:
        with self._wakeup:
            lease.deadline_s = deadline_s
            self._set_timer()

    def _set_timer(self) -> None:
        """Arm the timer for the leases, or disarm it. The caller holds the lock."""
        deadline_s = min((lease.deadline_s for lease in self._leases.values()), default=0.0)
        now_s = boot_s()
        if now_s < deadline_s and not self._stopping:
            # wait at least until a running loop would have ticked
            self._timer.arm(max(deadline_s + GRACE_S, now_s + TICK_S + TICK_AGE_S_MAX))
        else:
            self._timer.disarm()

    def _lose(self, lease: EtcdLease) -> None:
        self.drop(lease)
        lease.end_from_thread()

    def _next_member(self) -> _MemberChannel:
        """The member not asked for the longest time, avoided ones last."""
        now_s = boot_s()
        usable = (each for each in self._members if each.avoided_until_s <= now_s)
        member = next(usable, self._members[0])
        self._members.remove(member)
        self._members.append(member)
        return member


def _is_disconnected(error: Exception) -> bool:
    """Whether the connection failed or broke.

    etcd also sends UNAVAILABLE while it has no leader (api/v3rpc/rpctypes/error.go).
    """
    return (
        isinstance(error, grpc.RpcError)
        and error.code() is grpc.StatusCode.UNAVAILABLE
        and not (error.details() or "").startswith("etcdserver: ")
    )


def _due_s(lease: EtcdLease) -> float:
    """When to renew a lease: a third of its TTL after the last successful keepalive."""
    return lease.deadline_s - lease.ttl_s * 2 / 3
