"""The rig of processes on loopback: single brokers, fleets on an etcd of their own, and other programs beside them.

def test_it(rig):                                # the fixture of e2e/suites/local/conftest.py
    broker = rig.broker({"num.partitions": "3"})
    ... broker.bootstrap ...
    broker.kill(); broker.start()                # same ports, same data

def test_a_fleet(rig):
    fleet = rig.fleet(3, zones=["a", "b", "c"])
    ... fleet.bootstrap ... fleet.brokers[0].terminate()
"""

import http.client
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from e2e.harness.etcd import EtcdServer, etcd_binaries
from e2e.harness.etcd import etcd_members as make_members
from e2e.harness.program import Program

P = TypeVar("P", bound=Program)
HTTP_S_MAX = 30.0
"""A broker answers within milliseconds, but other busy processes may delay it."""


class Broker(Program):
    """`logfleet broker` on its own ports. It keeps ports and data over `kill` and `start`."""

    def __init__(
        self, directory: Path, config: Mapping[str, str] | None = None, name: str = "broker-1"
    ) -> None:
        super().__init__(name, [], directory)
        self.port, self.admin_port = self.ports.reserve(), self.ports.reserve()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.data = directory / "data"
        self.config = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "logfleet.admin.listener": f"127.0.0.1:{self.admin_port}",
            "log.dirs": str(self.data),
            "group.initial.rebalance.delay.ms": "0",
            **(config or {}),
        }

    def launch(self) -> None:
        self.command = [sys.executable, "-m", "logfleet", "broker"]
        for key, value in self.config.items():
            self.command += ["--override", f"{key}={value}"]
        super().launch()

    def start(self) -> None:
        """Start it and wait until it reports that it is ready. Raises ProgramFailed."""
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.get("/readyz")[0] == 200)

    def restart(self) -> None:
        """Stop it in order and start it again."""
        self.terminate()
        self.start()

    def get(self, path: str, timeout_s: float = HTTP_S_MAX) -> tuple[int, str]:
        """Return status and body of a path on its admin port.

        Status 0 if there is no response in time.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def metrics(self) -> str:
        """Return its page of metrics. Raises AssertionError if it is not served."""
        status, text = self.get("/metrics")
        assert status == 200, f"{self.name} shows no metrics: status {status}"
        return text

    def metric(self, name: str) -> float:
        """Return the sum of the series that begin with this name and these labels.

        Such as `x` or `x{topic="t"`. Raises AssertionError if there are none.
        """
        row = re.compile(rf"^{re.escape(name)}(?!\w).* (\S+)$", re.MULTILINE)
        values = row.findall(self.metrics())
        assert values, f"{self.name} has no metric {name}"
        return sum(map(float, values))


class Fleet:
    """Brokers 1 to N on one etcd of one or more members, all started together.

    etcd: the first member.
    """

    def __init__(self, etcd_members: list[EtcdServer], brokers: list[Broker]) -> None:
        self.etcd_members = etcd_members
        self.etcd = etcd_members[0]
        self.brokers: list[Broker] = []
        for broker in brokers:
            self.add(broker)

    def add(self, broker: Broker) -> None:
        """Create one more broker, which is not started yet."""
        endpoints = ",".join(each.endpoint for each in self.etcd_members)
        broker.config |= {
            "logfleet.metadata.store": "etcd",
            "logfleet.etcd.endpoints": endpoints,
        }
        self.brokers.append(broker)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()


class Rig:
    """Creates the programs of a test under one directory, and ends all of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs: list[Program] = []

    def program(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Program:
        """Create a program, which is not started yet.

        environment: replaces that of this process.
        """
        return self.own(Program(name, command, self.directory / name, environment))

    def broker(self, config: Mapping[str, str] | None = None) -> Broker:
        """Start a single broker on the embedded metadata store, and wait until it is ready."""
        name = f"broker-{len(self._programs) + 1}"
        broker = self.own(Broker(self.directory / name, config, name))
        broker.start()
        return broker

    def fleet(
        self,
        size: int,
        *,
        zones: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        etcd_members: int = 1,
        prefix: Sequence[str] = (),
        made: Callable[[Path, Mapping[str, str], str], Broker] = Broker,
    ) -> Fleet:
        """Start `size` brokers, ids from 1, on this machine's best etcd; wait until all are ready.

        zones: racks, given to the brokers in turn. etcd_members: with more than one, they have
        etcd's default heartbeat, election timeout and syncs, as in production. prefix: of the names
        of all these programs. made: creates a broker from its directory, configuration and name.
        """
        binary = etcd_binaries()[0]
        if etcd_members == 1:
            members = [EtcdServer(binary, self.directory / "etcd")]
        else:
            members = make_members(binary, self.directory / "etcd", etcd_members, speed=())
        for each in members:
            each.prefix = list(prefix)
            self.own(each).launch()
        for each in members:
            each.wait_ready()
        brokers = []
        for number in range(size):
            own = {"node.id": str(number + 1), **(config or {})}
            if zones:
                own["broker.rack"] = zones[number % len(zones)]
            name = f"broker-{number + 1}"
            broker = self.own(made(self.directory / name, own, name))
            broker.prefix = list(prefix)
            brokers.append(broker)
        fleet = Fleet(members, brokers)
        fleet.start()
        return fleet

    def close(self) -> None:
        """Kill the programs that still run, the newest first."""
        for program in reversed(self._programs):
            program.close()

    def logs(self) -> Iterator[tuple[str, str]]:
        """Return name and last lines of every program's log."""
        for program in self._programs:
            yield program.name, program.tail()

    def own(self, program: P) -> P:
        """End the program together with the rig, and show its log if the test fails."""
        self._programs.append(program)
        return program
