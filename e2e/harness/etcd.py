"""An etcd of one's own for a test: on free ports, in a directory of its own, stopped by its pid."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from logfleet.node.etcd_binary import EtcdBinary, etcd_binaries

__all__ = ["EtcdBinary", "EtcdServer", "TlsPaths", "etcd_binaries", "etcd_cluster", "etcd_server"]

START_TIMEOUT_S = 20
START_ATTEMPTS = 5
# Ten times faster than the defaults, so that elections and the shortest lease (1.5 elections) take no time in a test.
SPEED = ["--heartbeat-interval=10", "--election-timeout=100", "--unsafe-no-fsync"]


class TlsPaths:
    """PEM files of a server that asks its clients for certificates of the same CA."""

    def __init__(self, ca: Path, certificate: Path, key: Path) -> None:
        self.ca, self.certificate, self.key = ca, certificate, key


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class EtcdServer:
    """One member. It keeps its ports and its data over `kill` and `start`."""

    def __init__(
        self, binary: EtcdBinary, directory: Path, name: str = "m0", tls: TlsPaths | None = None
    ) -> None:
        self.binary, self.directory, self.name, self.tls = binary, directory, name, tls
        self.port, self.peer_port = free_ports(2)
        self.cluster = f"{name}={self.peer_url}"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_position = 0

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            str(self.binary.path),
            f"--name={self.name}",
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={self.cluster}",
            *SPEED,
        ]
        if self.tls:
            command += [
                "--client-cert-auth",
                f"--trusted-ca-file={self.tls.ca}",
                f"--cert-file={self.tls.certificate}",
                f"--key-file={self.tls.key}",
            ]
        with (self.directory / "log").open("ab") as log:
            self._log_position = log.seek(0, os.SEEK_END)
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.directory, env={"PATH": os.defpath}
            )

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until it says in its log that it serves clients. Raises RuntimeError with the log's end if it dies first."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._serving():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                tail = (self.directory / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"etcd {self.binary.version_text} did not start:\n{tail}")
            time.sleep(0.01)

    def _serving(self) -> bool:
        with (self.directory / "log").open("rb") as log:
            log.seek(self._log_position)
            return b"ready to serve client requests" in log.read()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP; done when all its threads have stopped (the signal reaches them one by one)."""
        assert self.process is not None
        self.signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        while any(_state(thread) != "T" for thread in threads.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; done when it is gone. Nothing happens if it is."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wipe(self) -> None:
        """Remove its data: started again, it is another cluster."""
        assert self.process is None
        shutil.rmtree(self.directory / "data")


def _state(thread: Path) -> str:
    """One letter, as in proc_pid_stat(5)."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


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
    """Started and ready. Another process may take a port between its choice and its use: then all begins anew."""
    for attempt in range(START_ATTEMPTS):
        folder = directory / f"etcd-{attempt}"
        servers = [EtcdServer(binary, folder / f"m{n}", f"m{n}", tls) for n in range(size)]
        try:
            for server in servers:
                server.cluster = ",".join(f"{each.name}={each.peer_url}" for each in servers)
                server.launch()
            for server in servers:
                server.wait_ready()
            yield servers
        except RuntimeError as error:
            if "address already in use" in str(error) and attempt + 1 < START_ATTEMPTS:
                continue
            raise
        finally:
            for server in servers:
                server.kill()
        return
