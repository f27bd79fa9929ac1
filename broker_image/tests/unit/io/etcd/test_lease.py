"""The thread that keeps leases, without an etcd.

What reaches it while it is busy is not forgotten.
"""

import asyncio
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from logfleet.io.clock import boot_s
from logfleet.io.etcd.endpoints import Addresses, TlsFiles
from logfleet.io.etcd.lease import TICK_AGE_S_MAX, TICK_S, EtcdLease, LeaseKeeper
from logfleet.io.etcd.shim import rpc
from logfleet.io.etcd.store import EtcdStore

pytestmark = pytest.mark.asyncio
NEVER = math.inf
NOWHERE = Addresses.parse(["127.0.0.1:1"])


class BusyKeeper(LeaseKeeper):
    """Renews as the test asks.

    `renewing` is set while it is at it, and it goes on after `go_on`.
    """

    def __init__(self) -> None:
        super().__init__(NOWHERE)
        self.renewing = threading.Event()
        self.go_on = threading.Event()
        self.asked: list[int] = []
        self.revoked: set[int] = set()

    def _renew(self, leases: list[EtcdLease]) -> bool:
        self.asked += [lease.id for lease in leases]
        self.renewing.set()
        assert self.go_on.wait(30)
        for lease in leases:
            if lease.id in self.revoked:
                self._lose(lease)
            else:
                lease.deadline_s = boot_s() + lease.ttl_s
        return True


def lease_of(number: int, *, ttl_s: int = 60, due: bool = True) -> EtcdLease:
    deadline_s = boot_s() + (0.5 if due else 1.0) * ttl_s
    return EtcdLease(number, ttl_s, deadline_s, revoke=lambda _: None)


async def wait(event: threading.Event) -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 30)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop counts as alive, however late the thread comes to look."""
    monkeypatch.setattr("logfleet.io.etcd.lease.TICK_AGE_S_MAX", 60.0)


@pytest.mark.usefixtures("alive")
async def test_a_keeper_stopped_while_it_loses_its_last_lease_ends() -> None:
    keeper = BusyKeeper()
    lease = lease_of(1)
    keeper.revoked.add(1)
    keeper.keep(lease)
    await wait(keeper.renewing)
    stopping = asyncio.ensure_future(keeper.stop())
    await asyncio.sleep(0)  # it has notified a thread that does not wait
    keeper.go_on.set()
    async with asyncio.timeout(30):
        await stopping
        await lease.lost()


@pytest.mark.usefixtures("alive")
async def test_a_lease_that_comes_while_another_is_renewed_is_kept_in_its_own_time() -> None:
    keeper = BusyKeeper()
    keeper.keep(lease_of(1))
    await wait(keeper.renewing)
    keeper.keep(lease_of(2))
    keeper.renewing.clear()
    keeper.go_on.set()
    await wait(keeper.renewing)
    assert keeper.asked == [1, 2]
    await keeper.stop()


async def test_without_a_tick_of_the_loop_nothing_is_renewed() -> None:
    keeper = BusyKeeper()
    keeper.go_on.set()
    lease = lease_of(1, ttl_s=1)
    keeper._ticked_s -= 10
    assert keeper._turn([lease]) > boot_s()
    assert keeper.asked == []
    keeper.tick()
    assert keeper._turn([lease]) == 0
    assert keeper.asked == [1]


@pytest.mark.usefixtures("alive")
async def test_a_lease_past_its_deadline_is_asked_for_until_etcd_says_that_it_has_ended() -> None:
    """etcd expires no lease without a leader, and renews all once it has one again."""

    class SilentKeeper(BusyKeeper):
        def _renew(self, leases: list[EtcdLease]) -> bool:
            if len(self.asked) < 3:
                self.asked += [lease.id for lease in leases]
                return False
            return super()._renew(leases)

    keeper = SilentKeeper()
    keeper.go_on.set()
    lease = lease_of(1, ttl_s=1)
    lease.deadline_s = boot_s() - 1
    keeper.keep(lease)
    await wait(keeper.renewing)
    assert keeper.asked[:4] == [1, 1, 1, 1]
    keeper.revoked.add(1)
    lease.deadline_s = boot_s()
    async with asyncio.timeout(30):
        await lease.lost()
    await keeper.stop()


async def test_credentials_that_cannot_be_read_are_no_answer_and_do_not_end_the_thread(
    tmp_path: Path,
) -> None:
    tls = TlsFiles(tmp_path / "ca.crt")
    keeper = LeaseKeeper(Addresses.parse(["https://127.0.0.1:1"], tls))
    member, lease = keeper._members[0], lease_of(1, ttl_s=1)
    for _ in range(2):
        member.avoided_until_s = 0.0
        assert not keeper._renew([lease])
        assert member.avoided_until_s > boot_s(), "it was asked"
    await keeper.stop()


async def test_members_are_asked_in_turn_and_silent_ones_come_last() -> None:
    keeper = LeaseKeeper(Addresses.parse(["a:1", "b:1", "c:1"]), first=1)

    def asked(count: int) -> str:
        return "".join(keeper._next_member()._target[0] for _ in range(count))

    assert asked(4) == "bcab"
    next(each for each in keeper._members if each._target == "a:1").avoided_until_s = (
        boot_s() + 3600
    )
    assert asked(3) == "cbc"
    for member in keeper._members:
        member.avoided_until_s = boot_s() + 3600
    assert asked(4) == "abca", "nobody answers: who was asked longest ago"


class NotedTimer:
    """Notes the time at which it would kill; NEVER while disarmed."""

    def __init__(self) -> None:
        self.at_s = NEVER

    def arm(self, at_s: float) -> None:
        self.at_s = at_s

    def disarm(self) -> None:
        self.at_s = NEVER

    def close(self) -> None: ...


class SlowEtcd:
    """Its own clock, and what is asked of it: each answer takes two seconds."""

    def __init__(self) -> None:
        self.began_s = self.now_s = boot_s()
        self._asked: Iterator[Any] = iter(())

    def boot_s(self) -> float:
        return self.now_s

    def LeaseKeepAlive(self, requests: Iterator[Any], timeout: float) -> "SlowEtcd":  # noqa: N802
        assert timeout > 0
        self._asked = requests
        return self

    def __next__(self) -> Any:
        self.now_s += 2
        return rpc.LeaseKeepAliveResponse(ID=next(self._asked).ID, TTL=60)

    def cancel(self) -> None: ...

    async def once(self, _call: object, _request: object) -> Any:
        self.now_s += 2
        return rpc.LeaseGrantResponse(ID=1, TTL=60)


@pytest.fixture
def slow_etcd(monkeypatch: pytest.MonkeyPatch) -> SlowEtcd:
    etcd = SlowEtcd()
    for module in ("lease", "store"):
        monkeypatch.setattr(f"logfleet.io.etcd.{module}.boot_s", etcd.boot_s)
    monkeypatch.setattr("logfleet.io.etcd.lease.stubs.LeaseStub", lambda _channel: etcd)
    return etcd


async def test_a_deadline_is_counted_from_when_the_keepalive_was_sent(slow_etcd: SlowEtcd) -> None:
    """etcd may have begun to count the moment it was sent.

    Counted from its answer, another broker could lead before the deadline.
    """
    keeper = LeaseKeeper(NOWHERE)
    leases = [lease_of(1), lease_of(2)]
    assert keeper._renew(leases)
    assert slow_etcd.now_s == slow_etcd.began_s + 4
    assert [lease.deadline_s for lease in leases] == [slow_etcd.began_s + 60] * 2


async def test_the_first_deadline_is_counted_from_when_the_lease_was_asked_for(
    slow_etcd: SlowEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EtcdStore(NOWHERE, "/logfleet/test/")
    monkeypatch.setattr(store._members, "once", slow_etcd.once)
    lease = await store.grant_lease(60)
    await store.close()
    assert slow_etcd.now_s == slow_etcd.began_s + 2
    assert lease.deadline_s == slow_etcd.began_s + 60


class NoResponse(grpc.RpcError):  # type: ignore[misc]  # gRPC has no types
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._said = code, details

    def code(self) -> grpc.StatusCode:
        return self._said[0]

    def details(self) -> str:
        return self._said[1]


@pytest.mark.parametrize(
    "error, stays_connected",
    [
        (NoResponse(grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed"), True),
        (NoResponse(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"), True),
        (NoResponse(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses"), False),
        (NoResponse(grpc.StatusCode.UNAVAILABLE, "DNS resolution failed"), False),
    ],
    ids=str,
)
async def test_a_channel_is_closed_with_its_connection_but_kept_for_a_silent_member(
    error: NoResponse,
    *,
    stays_connected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stub:
        def __init__(self, _channel: object) -> None: ...

        def LeaseKeepAlive(self, *_: object, **__: object) -> None:  # noqa: N802
            raise error

    monkeypatch.setattr("logfleet.io.etcd.lease.stubs.LeaseStub", Stub)
    keeper = LeaseKeeper(Addresses.parse(["127.0.0.1:1", "127.0.0.1:2"]))
    asked = keeper._members[0]
    before = asked.channel()
    assert not keeper._renew([lease_of(1)])
    assert (asked.channel() is before) == stays_connected
    assert keeper._next_member() is not asked
    for member in keeper._members:
        member.close()


async def test_a_process_is_killed_half_a_second_after_its_first_lease_unless_it_is_renewed(
    slow_etcd: SlowEtcd,
) -> None:
    timer = NotedTimer()
    keeper = LeaseKeeper(NOWHERE, timer=timer)
    first, second = lease_of(1), lease_of(2)
    keeper._leases = {1: first, 2: second}
    assert keeper._renew([first])
    assert timer.at_s == second.deadline_s + 0.5
    assert keeper._renew([second])
    assert timer.at_s == first.deadline_s + 0.5
    assert slow_etcd.now_s < first.deadline_s < second.deadline_s


async def test_a_dropped_lease_does_not_arm_the_timer_though_its_renewal_succeeds_later(
    slow_etcd: SlowEtcd,
) -> None:
    """The loop gives the lease up while the thread waits for etcd's answer."""
    timer = NotedTimer()
    keeper = LeaseKeeper(NOWHERE, timer=timer)
    first, second = lease_of(1), lease_of(2)
    keeper._leases = {1: first, 2: second}
    keeper.tick()
    assert timer.at_s == min(first.deadline_s, second.deadline_s) + 0.5
    keeper.drop(first)
    assert timer.at_s == second.deadline_s + 0.5
    keeper.drop(second)
    assert timer.at_s == NEVER
    assert keeper._renew([first, second])
    assert timer.at_s == NEVER
    assert slow_etcd.now_s > slow_etcd.began_s


async def test_a_stopped_keeper_does_not_arm_the_timer(slow_etcd: SlowEtcd) -> None:
    timer = NotedTimer()
    keeper = LeaseKeeper(NOWHERE, timer=timer)
    lease = keeper._leases[1] = lease_of(1)
    keeper.tick()
    assert timer.at_s < NEVER
    await keeper.stop()
    assert timer.at_s == NEVER
    assert keeper._renew([lease])
    assert timer.at_s == NEVER
    assert slow_etcd.now_s > slow_etcd.began_s


@pytest.mark.parametrize("step_s", [0.0, 0.1, 1.3, TICK_AGE_S_MAX - 0.01])
async def test_a_loop_that_runs_outlives_a_silent_etcd(slow_etcd: SlowEtcd, step_s: float) -> None:
    """Each tick comes before the timer that the one before has set, however long a step takes."""
    for early_s in range(30):
        timer = NotedTimer()
        keeper = LeaseKeeper(NOWHERE, timer=timer)
        keeper._leases[1] = lease = EtcdLease(
            1, 3, slow_etcd.now_s + 3 - early_s / 10, revoke=lambda _: None
        )
        while slow_etcd.now_s < lease.deadline_s:
            keeper.tick()
            assert timer.at_s < NEVER, "a process that is stopped now is to be killed"
            assert timer.at_s >= lease.deadline_s + 0.5
            slow_etcd.now_s += TICK_S + step_s
            assert slow_etcd.now_s < timer.at_s
        keeper.tick()
        assert timer.at_s == NEVER


KEEPING = """
import asyncio
from logfleet.io.clock import boot_s
from logfleet.io.dead_mans_timer import KernelTimer
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.lease import EtcdLease
from logfleet.io.etcd.store import EtcdStore

async def main():
    store = EtcdStore(Addresses.parse(["127.0.0.1:1"]), "/logfleet/test/", KernelTimer())
    lease = EtcdLease(1, 1, boot_s() + 1, revoke=store._revoke)
    store._keeper.keep(lease)
    store._tick()
    print(boot_s(), flush=True)
    await asyncio.sleep(4)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_only_a_process_that_cannot_run_is_killed_when_its_lease_ends(
    *, is_stopped: bool
) -> None:
    """With a lease that nobody renews, of one second."""
    command = [sys.executable, "-c", KEEPING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        began_s = float(process.stdout.readline())
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
        assert process.wait(30) == (-signal.SIGKILL if is_stopped else 0)
        if is_stopped:
            assert 1.5 <= boot_s() - began_s < 1 + TICK_AGE_S_MAX + TICK_S + 3
