"""The operator as a process beside an API server without nodes, and one broker in the place of every fleet.

Run as a program it is the operator itself, but for one thing: whatever a Cluster's addresses are, the broker at
BROKER_ADDRESS and BROKER_ADMIN_ADDRESS is asked, about itself. So resources, rights, watches, ledger and Kafka's admin
requests are all real.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from e2e.harness.processes import HTTP_S_MAX, Broker
from e2e.harness.program import Program

ADDRESS = "BROKER_ADDRESS"
ADMIN_ADDRESS = "BROKER_ADMIN_ADDRESS"
BROKER_ID = 1


class Operator(Program):
    """kubeconfig: who it is. broker: who is asked about topics, and whether it may stop.

    lease_namespace: where the Lease is by which it is elected; it works alone without one.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        broker: Broker,
        namespaces: str = "",
        *,
        lease_namespace: str = "",
    ) -> None:
        super().__init__("operator", [sys.executable, "-m", __spec__.name], directory)
        self.http_port = self.ports.reserve()
        self.environment = {
            "PATH": os.defpath,
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "KUBECONFIG": str(kubeconfig),
            "LOGFLEET_BROKER_IMAGE": "logfleet/broker:1",
            "LOGFLEET_HTTP_PORT": str(self.http_port),
            "LOGFLEET_NAMESPACES": namespaces,
            "LOGFLEET_LEASE_NAMESPACE": lease_namespace,
            ADDRESS: broker.bootstrap,
            ADMIN_ADDRESS: f"127.0.0.1:{broker.admin_port}",
        }

    def start(self) -> None:
        """It is ready by its own word. Raises ProgramFailed."""
        self.launch()
        self.wait_until(lambda: self.fetch("/readyz") == "ready\n", timeout_s=90)

    def fetch(self, path: str) -> str:
        """What it answers over HTTP; "" if it does not, or not with success."""
        try:
            url = f"http://127.0.0.1:{self.http_port}{path}"
            with urllib.request.urlopen(url, timeout=HTTP_S_MAX) as response:
                text: str = response.read().decode()
                return text
        except OSError:
            return ""

    def events(self) -> list[dict[str, object]]:
        """Its log since it was last started. Raises ValueError for a line that is no JSON."""
        return [json.loads(line) for line in self.said().splitlines()]


def main() -> None:
    from logfleet.control.balance.load import Plan
    from logfleet.control.brokers.feature_level import FeatureLevel
    from logfleet.operations.rebalancing import Goal, Progress
    from logfleet_operator.__main__ import Ways
    from logfleet_operator.__main__ import main as operate
    from logfleet_operator.brokers import BrokerAdmin, BrokerAdmins
    from logfleet_operator.clusters.may_i import AdminPorts, Answer
    from logfleet_operator.clusters.moves import FleetMovers

    class OneBroker(BrokerAdmins):
        async def open(self, bootstrap: str) -> BrokerAdmin:
            del bootstrap  # names a Service, which nobody serves here
            return await super().open(os.environ[ADDRESS])

    class OneDecider(AdminPorts):
        async def may_stop(self, addresses: Sequence[str], brokers: Sequence[int]) -> Answer | None:
            del addresses, brokers
            return await super().may_stop([os.environ[ADMIN_ADDRESS]], [BROKER_ID])

        async def serving(self, bootstrap: str) -> frozenset[int] | None:
            del bootstrap
            return await super().serving(os.environ[ADDRESS])

    class OneMover(FleetMovers):
        """The one broker has all replicas; those that are wanted besides are pods without a process."""

        async def held(self, bootstrap: str) -> Mapping[int, int]:
            del bootstrap
            return await super().held(os.environ[ADDRESS])

        async def step(self, bootstrap: str, goal: Goal) -> Progress:
            del bootstrap
            return await super().step(os.environ[ADDRESS], goal)

        async def propose(self, bootstrap: str, goal: Goal) -> Plan:
            del bootstrap
            return await super().propose(os.environ[ADDRESS], goal)

        async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
            del bootstrap
            return await super().call_back(os.environ[ADDRESS], goal)

        async def take_back(self, bootstrap: str, broker_ids: Collection[int]) -> None:
            serving = await OneDecider().serving(bootstrap) or frozenset()
            await super().take_back(os.environ[ADDRESS], serving.intersection(broker_ids))

        async def forget(self, bootstrap: str, broker_id: int) -> None:
            del bootstrap
            await super().forget(os.environ[ADDRESS], broker_id)

        async def level(self, bootstrap: str) -> FeatureLevel:
            del bootstrap
            return await super().level(os.environ[ADDRESS])

        async def raise_level(self, bootstrap: str, level: int) -> None:
            del bootstrap
            await super().raise_level(os.environ[ADDRESS], level)

    operate(Ways(OneBroker(), OneDecider(), OneMover))


if __name__ == "__main__":
    main()
