"""A program: the operator, changed to send all requests about brokers to one broker.

It uses the broker at BROKER_ADDRESS and BROKER_ADMIN_ADDRESS instead of a Cluster's addresses.
Resources, rights, watches, ledger and Kafka's admin requests are real. It imports only packages of
the operator's image.
"""

import os
from collections.abc import Collection, Mapping, Sequence

from logfleet.balance.load import Plan
from logfleet.balance.rebalancing import Goal, Progress
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet_operator.__main__ import BrokerAccess
from logfleet_operator.__main__ import main as operate
from logfleet_operator.brokers import BrokerAdmin, BrokerAdmins
from logfleet_operator.clusters.may_i import AdminPorts, MayIAnswer
from logfleet_operator.clusters.moves import FleetMovers

ADDRESS = "BROKER_ADDRESS"
ADMIN_ADDRESS = "BROKER_ADMIN_ADDRESS"
BROKER_ID = 1


class OneBroker(BrokerAdmins):
    async def open(self, bootstrap: str) -> BrokerAdmin:
        del bootstrap  # the address names a Service, which has no endpoints here
        return await super().open(os.environ[ADDRESS])


class OneDecider(AdminPorts):
    async def may_stop(self, addresses: Sequence[str], brokers: Sequence[int]) -> MayIAnswer | None:
        del addresses, brokers
        return await super().may_stop([os.environ[ADMIN_ADDRESS]], [BROKER_ID])

    async def serving(self, bootstrap: str) -> frozenset[int] | None:
        del bootstrap
        return await super().serving(os.environ[ADDRESS])


class OneMover(FleetMovers):
    """Reports all replicas as the one broker's; other brokers are pods without a process."""

    async def replica_counts(self, bootstrap: str) -> Mapping[int, int]:
        del bootstrap
        return await super().replica_counts(os.environ[ADDRESS])

    async def step(self, bootstrap: str, goal: Goal) -> Progress:
        del bootstrap
        return await super().step(os.environ[ADDRESS], goal)

    async def propose(self, bootstrap: str, goal: Goal) -> Plan:
        del bootstrap
        return await super().propose(os.environ[ADDRESS], goal)

    async def call_back(self, bootstrap: str, goal: Goal) -> Sequence[str]:
        del bootstrap
        return await super().call_back(os.environ[ADDRESS], goal)

    async def uncordon(self, bootstrap: str, broker_ids: Collection[int]) -> None:
        serving = await OneDecider().serving(bootstrap) or frozenset()
        await super().uncordon(os.environ[ADDRESS], serving.intersection(broker_ids))

    async def unregister(self, bootstrap: str, broker_id: int) -> None:
        del bootstrap
        await super().unregister(os.environ[ADDRESS], broker_id)

    async def stopped(self, bootstrap: str) -> Collection[int]:
        del bootstrap
        return await super().stopped(os.environ[ADDRESS])

    async def level(self, bootstrap: str) -> FeatureLevel:
        del bootstrap
        return await super().level(os.environ[ADDRESS])

    async def raise_level(self, bootstrap: str, level: int) -> None:
        del bootstrap
        await super().raise_level(os.environ[ADDRESS], level)


def main() -> None:
    operate(BrokerAccess(OneBroker(), OneDecider(), OneMover))


if __name__ == "__main__":
    main()
