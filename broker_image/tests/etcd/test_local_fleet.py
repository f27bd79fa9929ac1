"""`logfleet local` with brokers of straw: etcd and the processes are real."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from logfleet.node.tools import local_fleet
from logfleet.node.tools.local_fleet import FleetError, FleetSpec, LocalFleet
from logfleet.node.tools.loopback_ports import LoopbackPorts

from e2e.harness.etcd import etcd_binaries
from e2e.harness.program import reserve_row

pytestmark = pytest.mark.asyncio

BROKER = """
import http.server, json, os, signal, sys, time
config = dict(each.split("=", 1) for each in sys.argv[2::2])
mode = config.get("mode", "")
if mode == "broken" and config["node.id"] == "2":
    sys.exit("log.dirs: no space")
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    def stop(*_):
        print("stopped in order", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
print(json.dumps({"pid": os.getpid(), **config}), flush=True)
class Admin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if mode == "never" else 200)
        self.end_headers()
host, port = config["logfleet.admin.listener"].split(":")
http.server.HTTPServer((host, int(port)), Admin).serve_forever()
"""


class Run:
    """A fleet that runs until the block ends."""

    def __init__(self, spec: FleetSpec) -> None:
        self.said: list[str] = []
        self.heard = asyncio.Event()
        self.stop = asyncio.Event()
        self.fleet = LocalFleet(spec, self._say)
        self.task = asyncio.ensure_future(self.fleet.run(self.stop))

    def _say(self, line: str) -> None:
        self.said.append(line)
        self.heard.set()

    async def until(self, beginning: str) -> str:
        async with asyncio.timeout(30):
            while True:
                for line in self.said:
                    if line.startswith(beginning):
                        return line
                self.heard.clear()
                hearing = asyncio.ensure_future(self.heard.wait())
                await asyncio.wait([hearing, self.task], return_when=asyncio.FIRST_COMPLETED)
                if self.task.done():
                    hearing.cancel()
                    await self.task
                    raise AssertionError(f"ended without saying {beginning!r}: {self.said}")


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[FleetSpec]:
    script = tmp_path / "broker.py"
    script.write_text(BROKER)
    with LoopbackPorts() as ports:
        yield FleetSpec(
            etcd=etcd_binaries()[0],
            data=tmp_path / "data",
            brokers=2,
            zones=("a", "b"),
            port=reserve_row(ports, 2),
            overrides={"num.partitions": "5"},
            broker_command=(sys.executable, "-S", str(script)),
        )
    shutil.rmtree(tmp_path / "data" / "etcd", ignore_errors=True)  # 64 MB at least


def with_mode(spec: FleetSpec, mode: str) -> FleetSpec:
    return msgspec.structs.replace(spec, overrides={"mode": mode})


def config_of(spec: FleetSpec, broker_id: int) -> dict[str, str]:
    text = (spec.data / "logs" / f"broker-{broker_id}.log").read_text()
    found: dict[str, str] = json.loads(text.splitlines()[0])
    return found


def running(data: Path) -> list[int]:
    """Every process that has this fleet's directory on its command line."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                if str(data).encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def exe_of(pid: int) -> bytes:
    return bytes(Path(f"/proc/{pid}/exe").readlink())


async def all_gone(data: Path) -> None:
    """Return when no process of the fleet is left: the kernel's signal to a tethered one takes a moment.

    One may be missed at first: while a process begins another program, it has no command line.
    """
    async with asyncio.timeout(20):
        while left := running(data):
            for pid in left:
                await gone(pid)


async def gone(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


async def test_a_fleet_starts_tells_where_it_is_and_stops_in_order(spec: FleetSpec) -> None:
    run = Run(spec)
    ready = await run.until("ready: ")
    assert ready == f"ready: 127.0.0.1:{spec.port},127.0.0.1:{spec.port + 1}"
    assert f"broker 2 at 127.0.0.1:{spec.port + 1} in zone b" in run.said
    # whichever etcd PATH names first: one with known defects is warned of, and nothing else is
    warned = [line for line in run.said if line.startswith("warning: ")]
    assert len(warned) == (0 if spec.etcd.fit_for_data else 1)
    config = config_of(spec, 2)
    assert {**config, "pid": 0} == {
        "pid": 0,
        "node.id": "2",
        "listeners": f"PLAINTEXT://127.0.0.1:{spec.port + 1}",
        "log.dirs": str(spec.data / "broker-2"),
        "logfleet.admin.listener": config["logfleet.admin.listener"],
        "logfleet.cluster.name": "local",
        "logfleet.metadata.store": "etcd",
        "logfleet.etcd.endpoints": config["logfleet.etcd.endpoints"],
        "broker.rack": "b",
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "min.insync.replicas": "1",
        "num.partitions": "5",
    }
    assert len(running(spec.data)) == 3
    run.stop.set()
    await run.task
    assert running(spec.data) == []
    for broker_id in (1, 2):
        log = spec.data / "logs" / f"broker-{broker_id}.log"
        assert log.read_text().endswith("stopped in order\n")


async def test_a_fleet_finds_its_data_again(spec: FleetSpec) -> None:
    for _ in range(2):
        run = Run(spec)
        await run.until("ready: ")
        run.stop.set()
        await run.task
    assert (spec.data / "etcd" / "member").is_dir()


async def test_an_old_etcd_is_warned_of_once(spec: FleetSpec) -> None:
    old = spec.etcd._replace(version=(3, 5, 1))
    run = Run(msgspec.structs.replace(spec, etcd=old))
    await run.until("etcd 3.5.1 at ")
    run.stop.set()
    await run.task
    warnings = [line for line in run.said if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "fit for a trial, not for data" in warnings[0]


async def test_a_broker_that_cannot_start_ends_the_fleet_with_its_words(spec: FleetSpec) -> None:
    run = Run(with_mode(spec, "broken"))
    with pytest.raises(FleetError, match=r"(?s)broker 2 ended with exit code 1.*no space"):
        await run.task
    assert running(spec.data) == []


async def test_a_broker_that_is_killed_is_started_again(spec: FleetSpec) -> None:
    run = Run(spec)
    await run.until("ready: ")
    killed = int(config_of(spec, 1)["pid"])
    os.kill(killed, signal.SIGKILL)
    await run.until("broker 1 ended by signal 9 and is started again")
    log = spec.data / "logs" / "broker-1.log"
    async with asyncio.timeout(30):
        while log.read_text().count('"pid"') < 2:  # noqa: ASYNC110  a file tells nobody
            await asyncio.sleep(0.01)
    run.stop.set()
    await run.task
    assert running(spec.data) == []


async def test_an_etcd_that_dies_ends_the_fleet(spec: FleetSpec) -> None:
    run = Run(spec)
    await run.until("ready: ")
    (etcd,) = (pid for pid in running(spec.data) if b"etcd" in exe_of(pid))
    os.kill(etcd, signal.SIGKILL)
    with pytest.raises(FleetError, match="etcd ended by signal 9"):
        await run.task
    assert running(spec.data) == []


async def test_a_broker_that_will_not_stop_is_killed_and_named(
    spec: FleetSpec, monkeypatch
) -> None:
    monkeypatch.setattr(local_fleet, "BROKER_STOP_S_MAX", 0.05)
    run = Run(with_mode(spec, "deaf"))
    await run.until("ready: ")
    run.stop.set()
    await run.task
    assert "broker 2 did not stop within 0 s and was killed" in run.said
    assert running(spec.data) == []


async def test_a_second_stop_does_not_wait(spec: FleetSpec) -> None:
    run = Run(with_mode(spec, "deaf"))
    await run.until("ready: ")
    run.stop.set()
    await asyncio.sleep(0)
    run.fleet.kill()
    async with asyncio.timeout(10):
        await run.task
    assert running(spec.data) == []


async def test_a_fleet_that_is_never_ready_is_given_up(spec: FleetSpec, monkeypatch) -> None:
    run = Run(with_mode(spec, "never"))
    await run.until("etcd ")
    monkeypatch.setattr(local_fleet, "START_S_MAX", 0.1)
    with pytest.raises(FleetError, match="is not ready"):
        await run.task
    assert running(spec.data) == []


async def test_a_taken_port_and_a_taken_directory_are_said_before_anything_starts(
    spec: FleetSpec,
) -> None:
    run = Run(spec)
    await run.until("ready: ")
    with pytest.raises(FleetError, match="another local fleet runs in"):
        await Run(spec).task
    run.stop.set()
    await run.task
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", spec.port + 1)
    with pytest.raises(FleetError, match=rf"port {spec.port + 1} of broker 2 is taken"):
        await Run(spec).task
    server.close()
    await server.wait_closed()


MAIN = """
import asyncio, sys
from pathlib import Path
import msgspec
from logfleet.cli.machine import local as command
from logfleet.node.tools.local_fleet import FleetSpec
asyncio.run(command._run(msgspec.json.decode(sys.argv[1], type=FleetSpec, dec_hook=lambda t, v: t(v))))
"""


def started(spec: FleetSpec) -> subprocess.Popen[str]:
    encoded = msgspec.json.encode(spec, enc_hook=str).decode()
    command = [sys.executable, "-c", MAIN, encoded]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("after", ["etcd", "broker 1", "ready"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_left_whatever_ends_it_and_when(
    spec: FleetSpec, after: str, number: signal.Signals
) -> None:
    with started(spec) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(after):
                break
        process.send_signal(number)
        process.stdout.read()
        code = process.wait(30)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    await all_gone(spec.data)


@pytest.mark.parametrize("hundredths", range(5, 80, 15))
async def test_nothing_is_left_of_an_interrupt_at_any_moment_of_the_start(
    spec: FleetSpec, hundredths: int
) -> None:
    """The moments are arbitrary on purpose: imports, the loop's start, between fork and exec of a child."""
    with started(spec) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(hundredths / 100)
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            # While a module is imported Python may lose a KeyboardInterrupt: it prints those raised in a callback
            # of a weak reference (importlib._bootstrap._get_module_lock has one) and goes on. A person asks again.
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
    await all_gone(spec.data)
