"""The C client: built, run on its processor, understood."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from e2e.bench.kafka.nodes import CLIENT_CPU, Cluster, on_cpu
from e2e.harness.debian import install

SOURCE = Path(__file__).with_name("client.c")
PACKAGES = ("gcc", "libc6-dev", "librdkafka-dev")
HEADERS = (Path("/usr/include/stdio.h"), Path("/usr/include/librdkafka/rdkafka.h"))
GIVE_UP_S = 300


class ClientFailed(RuntimeError):
    """The client ended with an error: a record was lost, came twice or not in time. The text is its own."""


class Measured(msgspec.Struct, frozen=True):
    """What the client prints. requests: of the kind that the row is about. cpu_s, user_s, system_s: the brokers'. beside_s: of what stands beside them."""

    records: int
    requests: int
    wall_s: float
    cpu_s: float
    beside_s: float
    user_s: float
    system_s: float
    librdkafka: str
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None


class Acknowledged(msgspec.Struct, frozen=True):
    """acknowledged_ns: on the clock CLOCK_MONOTONIC, as time.monotonic_ns has it."""

    acknowledged_ns: int


def parse(text: str) -> Measured:
    """Raises msgspec.ValidationError for what is no such line."""
    return msgspec.json.decode(text, type=Measured)


def figures(measured: Measured) -> dict[str, float]:
    """The values of a round, by the keys of the rows' metrics."""
    whole_s = measured.cpu_s + measured.beside_s
    ticks_s = measured.user_s + measured.system_s
    found = {
        "cpu_us_per_record": measured.cpu_s / measured.records * 1e6,
        "cpu_us_per_request": measured.cpu_s / measured.requests * 1e6,
        "whole_cpu_us_per_record": whole_s / measured.records * 1e6,
        "whole_cpu_us_per_request": whole_s / measured.requests * 1e6,
        "records_per_s": measured.records / measured.wall_s,
        "records_per_request": measured.records / measured.requests,
        "kernel_share": measured.system_s / ticks_s if ticks_s else 0.0,
    }
    for key in ("p50_us", "p99_us", "p999_us", "max_us"):
        latency_us = getattr(measured, key)
        if latency_us is not None:
            found[key] = latency_us
    return found


class Client:
    """The program, in `directory`. Packages that it needs are installed if this is root; raises PackagesMissing if not."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("gcc") is None or not all(header.exists() for header in HEADERS):
            install(*PACKAGES)
        self._program = directory / "client"
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
        libraries = ["-lrdkafka", "-lpthread"]
        command = ["gcc", *flags, "-o", str(self._program), str(SOURCE), *libraries]
        subprocess.run(command, check=True)

    def command(self, mode: str, cluster: Cluster, topic: str, **more: str | int) -> list[str]:
        given = {"bootstrap": cluster.bootstrap, "topic": topic, "give_up_s": GIVE_UP_S, **more}
        words = [f"{key}={value}" for key, value in given.items()]
        return [*on_cpu(CLIENT_CPU), str(self._program), mode, *words]

    def run(
        self, mode: str, cluster: Cluster, topic: str, arguments: Mapping[str, str | int]
    ) -> Measured:
        """One load. Raises ClientFailed."""
        pids = {"pids": cluster.pids, "beside": cluster.beside_pids}
        listed = {key: ",".join(map(str, found)) for key, found in pids.items() if found}
        command = self.command(mode, cluster, topic, **listed, **arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClientFailed(
                f"{mode} against {cluster.name}: status {done.returncode}: {done.stderr[-2000:]}"
            )
        return parse(done.stdout)
