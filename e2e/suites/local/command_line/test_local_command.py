"""`logfleet local` as a person runs it: from a shell, with real brokers."""

import contextlib
import os
import re
import select
import signal
import sys
from pathlib import Path

import pytest

from e2e.harness.processes import Rig
from e2e.harness.program import Program, reserve_row

COMMAND = [sys.executable, "-m", "logfleet", "local", "--brokers=3", "--zones=a,b,c"]


@pytest.fixture
def program(rig: Rig) -> Program:
    program = rig.program("local", [])
    port = reserve_row(program.ports, 3)
    program.command = [*COMMAND, f"--port={port}", "--data-dir=data"]
    return program


def start(program: Program) -> None:
    program.launch()
    program.wait_until(lambda: "ready: " in program.said(), timeout_s=60)


def processes(program: Program) -> dict[str, int]:
    """Pids of the fleet's processes by name, found by the directory on their command lines."""
    found = {}
    mark = re.escape(str(program.directory / "data"))
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if match := re.search(rf"{mark}/(etcd|broker-\d+) ", line):
                found[match[1]] = int(process.name)
    return found


def wait_gone(pid: int) -> None:
    """Return when that process, which may not be our child, has ended."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            assert select.select([pidfd], [], [], 30)[0], f"{pid} lives on"
        finally:
            os.close(pidfd)


def test_a_fleet_starts_stops_and_starts_again_on_its_data(program: Program) -> None:
    for _ in range(2):
        start(program)
        lines = program.said().splitlines()
        assert [line.split(" ")[-1] for line in lines if line.startswith("broker ")] == [*"abc"]
        assert set(processes(program)) == {"etcd", "broker-1", "broker-2", "broker-3"}
        program.send(signal.SIGINT)
        assert program.wait() == 0
        assert processes(program) == {}
    logs = program.directory / "data" / "logs"
    for broker_id in (1, 2, 3):
        said = (logs / f"broker-{broker_id}.log").read_text()
        assert said.count('"broker_stopped"') == 2, "in order, each time"


@pytest.mark.full
def test_when_etcd_dies_all_stop_with_exit_code_1(program: Program) -> None:
    start(program)
    os.kill(processes(program)["etcd"], signal.SIGKILL)
    assert program.wait(60) == 1
    assert "Error: etcd ended by signal 9" in program.said()
    assert processes(program) == {}


def test_a_broker_that_is_killed_is_started_again(program: Program) -> None:
    start(program)
    killed = processes(program)["broker-2"]
    os.kill(killed, signal.SIGKILL)
    wait_gone(killed)
    program.wait_until(lambda: processes(program).get("broker-2", killed) != killed)
    assert "broker 2 ended by signal 9 and is started again" in program.said()
    program.send(signal.SIGINT)
    assert program.wait() == 0
    assert processes(program) == {}


def test_a_killed_command_leaves_nothing(program: Program) -> None:
    start(program)
    left = processes(program)
    assert len(left) == 4
    program.kill()
    for pid in left.values():
        wait_gone(pid)
    assert processes(program) == {}


def test_a_fleet_of_the_rig_registers_its_brokers_with_their_zones(rig: Rig) -> None:
    fleet = rig.fleet(3, zones=["a", "b"])
    assert [broker.config["broker.rack"] for broker in fleet.brokers] == ["a", "b", "a"]
    assert all(broker.get("/readyz") == (200, "ok\n") for broker in fleet.brokers)
    assert fleet.brokers[2].rss_bytes() > 0
    fleet.brokers[0].kill()
    fleet.brokers[0].start()
    assert fleet.brokers[0].terminate() == 0
