"""What is done to a fleet under transactions, besides what `e2e.load.fleet.faults` has."""

import random

from logfleet.coordinators.partition import partition_for

from e2e.load.fleet.faults import FAULTS, Inject, Injected, kill
from e2e.load.fleet.fleet import FailoverFleet

STATE_TOPIC = "__transaction_state"
IDS = ("confluent-0", "java-0", "ours-1-0", "ours-2-0", "copier-1", "copier-2")
"""Transactional ids whose coordinators are killed."""


def kill_coordinator(fleet: FailoverFleet, dice: random.Random) -> Injected:
    """SIGKILL the broker that coordinates one of IDS."""
    partitions = fleet.admin.list_topics(STATE_TOPIC, timeout=5).topics[STATE_TOPIC].partitions
    index = partition_for(dice.choice(IDS), len(partitions))
    return kill(fleet, partitions[index].leader)


TRANSACTION_FAULTS: dict[str, Inject] = {
    **{
        kind: FAULTS[kind]
        for kind in ("SIGKILL leader", "SIGKILL controller", "SIGTERM", "SIGSTOP", "old volume")
    },
    "SIGKILL coordinator": kill_coordinator,
}
