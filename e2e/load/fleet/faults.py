"""What is done to the fleet, and undone."""

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from e2e.load.fleet.fleet import TOPIC, FailoverFleet
from e2e.load.verdict import Fault

ETCD_AWAY_S = 6.0
ETCD_LONG_AWAY_S = 300.0
COPY_AGE_S = 3.0
STEADY_S = 3.0
"""Of load before the first fault and after each is healed."""
SEEN_S = 5.0
"""How long a fault is watched before it is undone."""


class Injected(NamedTuple):
    """at_s: monotonic time of the fault. victim: a broker's id, or `etcd`. led: partitions that it led then. heal: undoes it."""

    at_s: float
    victim: str
    led: frozenset[int]
    heal: Callable[[], None]


def kill_leader(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """Not the controller, unless it leads all."""
    controller = fleet.controller()
    ids = sorted({leader for leader in fleet.leaders().values() if leader != controller})
    return kill(fleet, dice.choice(ids or [controller]))


def kill_follower(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """Whoever leads least, but for the controller."""
    leaders, controller = list(fleet.leaders().values()), fleet.controller()
    ids = [each for each in (1, 2, 3) if each != controller]
    dice.shuffle(ids)
    return kill(fleet, min(ids, key=leaders.count))


def kill_controller(fleet: FailoverFleet, dice: random.Random) -> Injected:
    del dice
    return kill(fleet, fleet.controller())


def kill(fleet: FailoverFleet, broker_id: int) -> Injected:
    led, broker = fleet.led_by(broker_id), fleet.broker(broker_id)
    at_s = time.monotonic()
    broker.kill()
    return Injected(at_s, str(broker_id), led, broker.start)


def terminate(fleet: FailoverFleet, dice: random.Random) -> Injected:
    broker_id = dice.choice([1, 2, 3])
    led, broker = fleet.led_by(broker_id), fleet.broker(broker_id)
    at_s = time.monotonic()
    code = broker.terminate()
    assert code == 0, f"{broker.name} ended with {code} at SIGTERM"
    return Injected(at_s, str(broker_id), led, broker.start)


def stop(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """SIGSTOP. The broker's own timer kills it, and it starts again as a container does."""
    broker_id = dice.choice([1, 2, 3])
    led, broker = fleet.led_by(broker_id), fleet.broker(broker_id)
    at_s = time.monotonic()
    broker.pause()

    def heal() -> None:
        code = broker.wait()
        assert code == -signal.SIGKILL, f"{broker.name} ended with {code}, not by its timer"
        broker.start()

    return Injected(at_s, str(broker_id), led, heal)


def kill_etcd_member(fleet: FailoverFleet, dice: random.Random) -> Injected:
    member = dice.choice(fleet.fleet.etcd_members)
    at_s = time.monotonic()
    member.kill()
    return Injected(at_s, member.name, frozenset(), member.start)


def kill_etcd(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """All members, and back after longer than a lease lasts."""
    del dice
    return _kill_etcd(fleet, ETCD_AWAY_S)


def kill_etcd_for_minutes(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """As an upgrade that failed, a full disk or a certificate that ran out would have it."""
    del dice
    return _kill_etcd(fleet, ETCD_LONG_AWAY_S)


def _kill_etcd(fleet: FailoverFleet, away_s: float) -> Injected:
    at_s = time.monotonic()
    for member in fleet.fleet.etcd_members:
        member.kill()

    def heal() -> None:
        time.sleep(away_s)  # that is the fault itself
        for member in fleet.fleet.etcd_members:
            member.launch()
        for member in fleet.fleet.etcd_members:
            member.wait_ready()

    return Injected(at_s, "etcd", frozenset(), heal)


def fill_disk(fleet: FailoverFleet, dice: random.Random) -> Injected:
    broker_id = dice.choice([1, 2, 3])
    led, disk = fleet.led_by(broker_id), fleet.disk(broker_id)
    at_s = time.monotonic()
    disk.fill()
    return Injected(at_s, str(broker_id), led, disk.empty)


def fail_log_dir(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """One of two log directories of a leader; it is used again after a restart."""
    broker_id = dice.choice(sorted(set(fleet.leaders().values())))
    broker, disk = fleet.broker(broker_id), fleet.disk(broker_id)
    led = fleet.led_by(broker_id)
    log_dir = next(each for each in disk.log_dirs if any(_in(each, index) for index in led))
    at_s = time.monotonic()
    disk.fail(log_dir)

    def heal() -> None:
        disk.mend()
        code = broker.terminate()
        assert code == 0, f"{broker.name} ended with {code} at SIGTERM"
        broker.start()

    return Injected(at_s, str(broker_id), frozenset(i for i in led if _in(log_dir, i)), heal)


def put_old_volume_in_place(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """A broker gets back what its disk was a while ago, when it is the last one in sync, and starts alone."""
    broker_id = dice.choice([1, 2, 3])
    broker = fleet.broker(broker_id)
    copy = broker.data.with_name("copy")
    is_running = dice.random() < 0.5
    if not is_running:
        broker.terminate()
    shutil.copytree(broker.data, copy, symlinks=True)
    if not is_running:
        broker.start()
    fleet.until_whole()
    time.sleep(COPY_AGE_S)  # what is acknowledged meanwhile is not in the copy
    led, others = fleet.led_by(broker_id), [each for each in fleet.brokers if each is not broker]
    at_s = time.monotonic()
    for each in others:
        each.kill()
    fleet.until("alone", lambda: fleet.registered() == {broker_id})
    broker.kill()
    shutil.rmtree(broker.data)
    copy.rename(broker.data)

    def heal() -> None:
        broker.launch()
        fleet.until("alone", lambda: fleet.registered() == {broker_id})
        for each in others:
            each.launch()
        for each in fleet.brokers:
            each.wait_ready()

    return Injected(at_s, str(broker_id), led, heal)


def _in(log_dir: Path, partition: int) -> bool:
    return (log_dir / f"{TOPIC}-{partition}").exists()


Inject = Callable[[FailoverFleet, random.Random], Injected]
FAULTS: dict[str, Inject] = {
    "SIGKILL leader": kill_leader,
    "SIGKILL follower": kill_follower,
    "SIGKILL controller": kill_controller,
    "SIGTERM": terminate,
    "SIGSTOP": stop,
    "etcd member": kill_etcd_member,
    "etcd": kill_etcd,
    "etcd for 5 minutes": kill_etcd_for_minutes,
    "disk full": fill_disk,
    "EIO": fail_log_dir,
    "old volume": put_old_volume_in_place,
}
OF_DISKS = frozenset({"disk full", "EIO"})
"""Faults that need a fleet with disks of its own."""


def disturb(
    fleet: FailoverFleet,
    dice: random.Random,
    kind: str,
    inject: Inject,
    *,
    seen_s: float = SEEN_S,
    steady_s: float = STEADY_S,
) -> Fault:
    """Inject a fault; return when the fleet is whole again and has served for a while."""
    injected = inject(fleet, dice)
    time.sleep(seen_s)
    injected.heal()
    fleet.until_whole()
    time.sleep(steady_s)
    to_s = time.monotonic()
    whole_s = to_s - injected.at_s - steady_s
    print(f"  {kind} of {injected.victim}: whole after {whole_s:.1f} s", flush=True)
    return Fault(kind, injected.victim, injected.at_s, to_s, injected.led)
