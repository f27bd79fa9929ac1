"""An etcd server for one test: on free ports, with its own directory, stopped by its pid."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from logfleet.node.tools.etcd_binary import EtcdBinary, etcd_binaries

from e2e.harness.program import Program

__all__ = ["EtcdBinary", "EtcdServer", "TlsPaths", "etcd_binaries", "etcd_cluster", "etcd_server"]

# Ten times faster than the defaults, so that elections and the shortest lease (1.5 elections) take no time in a test.
SPEED = ["--heartbeat-interval=10", "--election-timeout=100", "--unsafe-no-fsync"]


class TlsPaths:
    """PEM files of a server that requires client certificates of the same CA."""

    def __init__(self, ca: Path, certificate: Path, key: Path) -> None:
        self.ca, self.certificate, self.key = ca, certificate, key


class EtcdServer(Program):
    """One member. It keeps its ports and data over `kill` and `start`.

    speed: flags for its heartbeat and election timeout; none for etcd's defaults.
    """

    def __init__(
        self,
        binary: EtcdBinary,
        directory: Path,
        name: str = "etcd",
        tls: TlsPaths | None = None,
        speed: Sequence[str] = SPEED,
    ) -> None:
        super().__init__(name, [], directory, {"PATH": os.defpath})
        self.binary, self.tls, self.speed = binary, tls, speed
        self.port, self.peer_port = self.ports.reserve(), self.ports.reserve()
        self.cluster = f"{name}={self.peer_url}"

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def launch(self) -> None:
        self.command = [
            str(self.binary.path),
            f"--name={self.name}",
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={self.cluster}",
            *self.speed,
        ]
        if self.tls:
            self.command += [
                "--client-cert-auth",
                f"--trusted-ca-file={self.tls.ca}",
                f"--cert-file={self.tls.certificate}",
                f"--key-file={self.tls.key}",
            ]
        super().launch()

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until its log says that it serves clients. Raises ProgramFailed."""
        self.wait_until(lambda: "ready to serve client requests" in self.said())

    def close(self) -> None:
        """Kill it and remove its data, 64 MB of log that would fill the disk test by test."""
        super().close()
        shutil.rmtree(self.directory / "data", ignore_errors=True)

    def wipe(self) -> None:
        """Remove its data; when it is started again, it is a new cluster."""
        assert not self.running
        shutil.rmtree(self.directory / "data")


def etcd_members(
    binary: EtcdBinary,
    directory: Path,
    size: int,
    tls: TlsPaths | None = None,
    speed: Sequence[str] = SPEED,
) -> list[EtcdServer]:
    """Return the members of one cluster, which are not started yet."""
    names = [f"m{number}" for number in range(size)]
    servers = [EtcdServer(binary, directory / name, name, tls, speed) for name in names]
    for server in servers:
        server.cluster = ",".join(f"{each.name}={each.peer_url}" for each in servers)
    return servers


@contextlib.contextmanager
def etcd_server(
    binary: EtcdBinary, directory: Path, tls: TlsPaths | None = None
) -> Iterator[EtcdServer]:
    with etcd_cluster(binary, directory, 1, tls) as servers:
        yield servers[0]


@contextlib.contextmanager
def etcd_cluster(
    binary: EtcdBinary, directory: Path, size: int, tls: TlsPaths | None = None
) -> Iterator[list[EtcdServer]]:
    """Start a cluster and wait until it is ready."""
    servers = etcd_members(binary, directory, size, tls)
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_ready()
        yield servers
    finally:
        for server in servers:
            server.close()
