"""What /readyz and /healthz answer while the operator cannot work, for Kubernetes and helm."""

import contextlib
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from e2e.harness.program import Program

SOON_S = 60.0
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "logfleet-operator", "namespace": "air", "resourceVersion": "1"},
    "spec": {"holderIdentity": "another", "leaseDurationSeconds": 15, "leaseTransitions": 0},
}


class Standby(BaseHTTPRequestHandler):
    """An API server with a Lease that somebody else holds for ever."""

    renewals = 0

    def do_GET(self) -> None:
        type(self).renewals += 1
        spec = {**LEASE["spec"], "renewTime": f"{self.renewals}"}  # type: ignore[dict-item]
        body = json.dumps({**LEASE, "spec": spec}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Not into the output of the tests."""


class Operator(Program):
    """As its chart starts it, with an API server at a port where nobody listens yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__("operator", [sys.executable, "-m", "logfleet_operator"], directory)
        self.http_port, self.api_port = self.ports.reserve(), self.ports.reserve()
        directory.mkdir()
        kubeconfig = directory / "config"
        server = {"server": f"http://127.0.0.1:{self.api_port}"}
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "it",
                    "clusters": [{"name": "it", "cluster": server}],
                    "users": [{"name": "it", "user": {"token": "secret"}}],
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                }
            )
        )
        self.environment = {
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "KUBECONFIG": str(kubeconfig),
            "LOGFLEET_BROKER_IMAGE": "logfleet/broker:1",
            "LOGFLEET_HTTP_PORT": str(self.http_port),
            "LOGFLEET_LEASE_NAMESPACE": "air",
        }

    def fetch(self, path: str) -> tuple[int, str]:
        """Status and text; (0, "") while nobody answers."""
        try:
            url = f"http://127.0.0.1:{self.http_port}{path}"
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@contextlib.contextmanager
def listening(port: int) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", port), Standby)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path / "operator")
    try:
        yield made
    finally:
        made.close()


def test_it_stands_by_only_once_it_has_read_that_another_one_works(operator: Operator) -> None:
    operator.launch()
    operator.wait_until(lambda: operator.said().count("lease_unknown") >= 2, SOON_S)
    status, why = operator.fetch("/readyz")
    assert status == 503
    assert "Lease was read: False" in why
    assert operator.fetch("/healthz") == (200, "ok\n")
    with listening(operator.api_port):
        operator.wait_until(lambda: operator.fetch("/readyz") == (200, "stands by\n"), SOON_S)
    # The API server goes away: nothing is gained if the operator is restarted, or taken out.
    before = operator.said().count("lease_unknown")
    operator.wait_until(lambda: operator.said().count("lease_unknown") > before, SOON_S)
    assert operator.fetch("/readyz") == (200, "stands by\n")
    assert operator.fetch("/healthz") == (200, "ok\n")
