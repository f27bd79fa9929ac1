"""A whole fleet on this machine for trials: one etcd and N brokers as processes.

It starts in order (etcd, then the brokers) and stops in the reverse order. A broker that is killed
or stopped by a signal is started again, as a StatefulSet would; if a process fails, or etcd ends,
the others are stopped too. The processes are tethered to this one, in sessions of their own: its
end, even by SIGKILL, ends them.
"""

import asyncio
import contextlib
import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from logfleet.io.child_process import ChildProcess
from logfleet.node.tools.etcd_binary import EtcdBinary
from logfleet.node.tools.loopback_ports import LoopbackPorts, is_taken

START_S_MAX: Final = 60.0
REPLICAS_MAX: Final = 3
"""Replicas of topics created without a number; min.insync.replicas is one less."""
BROKER_STOP_S_MAX: Final = 30.0
"""A broker that stops in order flushes and fsyncs its logs."""
ETCD_STOP_S_MAX: Final = 10.0
POLL_S: Final = 0.05
PROBE_S_MAX: Final = 2.0


class FleetError(Exception):
    """The fleet cannot start, or one of its processes has ended. The text is for people."""


class FleetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a local fleet.

    data: directory for all its files, in which a later start finds it again. zones: racks given to
    the brokers in turn; none for no racks. port: of broker 1, the next ones follow. overrides:
    Kafka keys for every broker. broker_command: starts a broker; --override options are appended.
    """

    etcd: EtcdBinary
    data: Path
    brokers: int
    zones: tuple[str, ...] = ()
    port: int = 9092
    overrides: Mapping[str, str] = {}
    broker_command: tuple[str, ...] = (sys.executable, "-m", "logfleet", "broker")

    def ports(self) -> list[int]:
        return [self.port + index for index in range(self.brokers)]

    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports())

    def replication(self) -> dict[str, str]:
        """As many replicas as there are brokers, up to REPLICAS_MAX.

        Writes survive the loss of one broker.
        """
        replicas = min(self.brokers, REPLICAS_MAX)
        return {
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(max(1, replicas - 1)),
            "min.insync.replicas": str(max(1, replicas - 1)),
        }

    def zone(self, broker_id: int) -> str | None:
        return self.zones[(broker_id - 1) % len(self.zones)] if self.zones else None


class LocalFleet:
    """Runs the processes. print_line: prints a line for the person at the terminal.

    Runs on asyncio's own loop: uvloop starts programs by a fork that runs Python's fork handlers in
    the child, and gRPC's where they are not switched off (see io.etcd); this was seen to hang once
    gRPC had threads. subprocess, which asyncio uses, runs none.
    """

    def __init__(self, spec: FleetSpec, print_line: Callable[[str], None]) -> None:
        self._spec = spec
        self._print_line = print_line
        self._ports = LoopbackPorts()
        self._children: list[ChildProcess] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Run the fleet until `stop` is set. None of it runs afterwards, even if this is cancelled.

        Raises FleetError if it cannot start or one of its processes ends first.
        """
        with self._locked(), self._ports:
            self._check_ports()
            life = asyncio.ensure_future(self._run_processes())
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait([life, stopping], return_when=asyncio.FIRST_COMPLETED)
                if life.done():
                    await life
            finally:
                life.cancel()
                stopping.cancel()
                await asyncio.wait([life, stopping])
                await self._stop_all()
            if stop.is_set() and not life.cancelled():
                life.exception()  # marks an error as handled: the stop was requested

    def kill(self) -> None:
        """End every process at once; `run` then returns soon."""
        for child in self._children:
            child.kill()

    async def _run_processes(self) -> None:
        """Start everything; restart brokers that were ended from outside, until a process fails.

        That always raises FleetError.
        """
        endpoint = await self._start_etcd()
        await self._start_brokers(endpoint)
        self._print_line(f"ready: {self._spec.bootstrap()}")
        while True:
            await asyncio.wait(
                [child.ended for child in self._children], return_when=asyncio.FIRST_COMPLETED
            )
            _, *brokers = self._children
            for child in brokers:
                if child.has_ended and child.ended.result() <= 0:
                    self._print_line(
                        f"{child.name} ended {_exit_text(child.ended.result())} and is started "
                        "again"
                    )
                    await child.start()
            self._check_alive()

    async def _start_etcd(self) -> str:
        spec, port, peer_port = self._spec, self._ports.reserve(), self._ports.reserve()
        if not spec.etcd.fit_for_data:
            self._print_line(
                f"warning: etcd {spec.etcd.version_text} has known defects; fit for a trial, not "
                "for data (put etcd 3.6.5 or newer on PATH)"
            )
        endpoint, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        command = [
            str(spec.etcd.path),
            "--name=local",
            f"--data-dir={spec.data / 'etcd'}",
            f"--listen-client-urls={endpoint}",
            f"--advertise-client-urls={endpoint}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=local={peer}",
            "--log-level=warn",
        ]
        etcd = await self._start("etcd", command)
        await self._until_ready(
            etcd, port, "/health", lambda body: json.loads(body)["health"] == "true"
        )
        self._print_line(f"etcd {spec.etcd.version_text} at 127.0.0.1:{port}")
        return f"127.0.0.1:{port}"

    async def _start_brokers(self, endpoint: str) -> None:
        spec = self._spec
        started = []
        for broker_id, port in enumerate(spec.ports(), start=1):
            admin = self._ports.reserve()
            zone = spec.zone(broker_id)
            config = {
                "node.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(spec.data / f"broker-{broker_id}"),
                "logfleet.admin.listener": f"127.0.0.1:{admin}",
                "logfleet.cluster.name": "local",
                "logfleet.metadata.store": "etcd",
                "logfleet.etcd.endpoints": endpoint,
                **({"broker.rack": zone} if zone else {}),
                **spec.replication(),
                **spec.overrides,
            }
            command = list(spec.broker_command)
            for key, value in config.items():
                command += ["--override", f"{key}={value}"]
            started.append((await self._start(f"broker {broker_id}", command), admin))
        for broker_id, (child, admin) in enumerate(started, start=1):
            await self._until_ready(child, admin, "/readyz", lambda _: True)
            zone = spec.zone(broker_id)
            self._print_line(
                f"{child.name} at 127.0.0.1:{spec.port + broker_id - 1}"
                + (f" in zone {zone}" if zone else "")
            )

    async def _start(self, name: str, command: list[str]) -> ChildProcess:
        log = self._spec.data / "logs" / f"{name.replace(' ', '-')}.log"
        child = ChildProcess(name, command, log)
        self._children.append(child)
        await child.start()
        return child

    async def _until_ready(
        self, child: ChildProcess, port: int, path: str, ready: Callable[[str], bool]
    ) -> None:
        """Probe until the answer is 200 and `ready` accepts its body."""
        try:
            async with asyncio.timeout(START_S_MAX):
                while True:
                    self._check_alive()
                    status, body = await _get(port, path)
                    if status == 200 and ready(body):
                        return
                    await asyncio.wait([child.ended], timeout=POLL_S)
        except TimeoutError:
            raise FleetError(
                f"{child.name} is not ready after {START_S_MAX:.0f} s; the end of "
                f"{child.log}:\n{child.output_tail()}"
            ) from None

    def _check_alive(self) -> None:
        for child in self._children:
            if child.has_ended:
                raise FleetError(
                    f"{child.name} ended {_exit_text(child.ended.result())}; the end of "
                    f"{child.log}:\n{child.output_tail()}"
                )

    async def _stop_all(self) -> None:
        """First the brokers, then etcd, which they need."""
        etcd, brokers = self._children[:1], self._children[1:]
        await asyncio.gather(*(self._stop(child, BROKER_STOP_S_MAX) for child in brokers))
        await asyncio.gather(*(self._stop(child, ETCD_STOP_S_MAX) for child in etcd))

    async def _stop(self, child: ChildProcess, grace_s: float) -> None:
        if not await child.stop(grace_s):
            self._print_line(f"{child.name} did not stop within {grace_s:.0f} s and was killed")

    def _check_ports(self) -> None:
        for broker_id, port in enumerate(self._spec.ports(), start=1):
            if is_taken(port):
                raise FleetError(
                    f"port {port} of broker {broker_id} is taken; choose others with --port"
                )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two fleets in one directory would overwrite each other."""
        self._spec.data.mkdir(parents=True, exist_ok=True)
        with (self._spec.data / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FleetError(f"another local fleet runs in {self._spec.data}") from None
            yield


async def _get(port: int, path: str) -> tuple[int, str]:
    """Status and body of an HTTP GET on loopback; status 0 without an answer."""
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0, ""
    fields = head.split(maxsplit=2)
    return (int(fields[1]), body) if len(fields) > 1 and fields[1].isdecimal() else (0, "")


def _exit_text(exit_code: int) -> str:
    return f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
