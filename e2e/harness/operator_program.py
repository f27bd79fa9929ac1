"""The operator as a process, with the Python and packages of its image.

It works on an API server without nodes.
"""

import json
import os
import urllib.request
from pathlib import Path

from e2e.harness.image_python import ROOT, SOURCES, ensure_image_python
from e2e.harness.kube import operator_of_one_broker
from e2e.harness.processes import HTTP_S_MAX, Broker
from e2e.harness.program import Program
from e2e.lab.settings import settings_from


class Operator(Program):
    """kubeconfig: its identity.

    broker: the broker that it asks about topics, and whether it may be stopped.

    lease_namespace: namespace of the Lease by which it is elected; None: it runs without election.
    broker_image: its default image for brokers.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        broker: Broker,
        namespaces: str = "",
        *,
        lease_namespace: str = "",
        broker_image: str = "logfleet/broker:1",
    ) -> None:
        python = ensure_image_python(settings_from(os.environ, Path.home()))
        program = operator_of_one_broker.__name__
        super().__init__("operator", [str(python), "-m", program], directory)
        self.http_port = self.ports.reserve()
        self.environment = {
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *SOURCES))),
            "KUBECONFIG": str(kubeconfig),
            "LOGFLEET_BROKER_IMAGE": broker_image,
            "LOGFLEET_HTTP_PORT": str(self.http_port),
            "LOGFLEET_NAMESPACES": namespaces,
            "LOGFLEET_LEASE_NAMESPACE": lease_namespace,
            operator_of_one_broker.ADDRESS: broker.bootstrap,
            operator_of_one_broker.ADMIN_ADDRESS: f"127.0.0.1:{broker.admin_port}",
        }

    def start(self) -> None:
        """Start it and wait until it reports that it is ready. Raises ProgramFailed."""
        self.launch()
        self.wait_until(lambda: self.fetch("/readyz").startswith("ready"), timeout_s=90)

    def fetch(self, path: str) -> str:
        """Return its response over HTTP; "" if it does not respond, or not with success."""
        try:
            url = f"http://127.0.0.1:{self.http_port}{path}"
            with urllib.request.urlopen(url, timeout=HTTP_S_MAX) as response:
                text: str = response.read().decode()
                return text
        except OSError:
            return ""

    def events(self) -> list[dict[str, object]]:
        """Return its log since it was last started.

        Raises ValueError for a line that is not JSON.
        """
        return [json.loads(line) for line in self.said().splitlines()]
