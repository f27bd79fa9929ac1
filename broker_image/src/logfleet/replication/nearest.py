"""The preferred read replica of a consumer: one in its own rack (KIP-392).

Source: ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector.
"""

from collections.abc import Callable
from typing import Final

from logfleet.replication.leader import LeaderReplicas

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"


def nearest_replica(
    replicas: LeaderReplicas, offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """The follower from which a consumer in `rack` should read `offset`; None: from the leader.

    It is in sync, has that offset, and has the longest log of the replicas in that rack.
    rack_of: the rack of a broker, None if the consumer cannot reach it.
    """
    if not rack or rack_of(replicas.me) == rack:
        return None
    best: tuple[int, int, int] | None = None
    for broker_id, broker_epoch in replicas.state.isr:
        follower = replicas.followers.get(broker_id)  # None for the leader
        if follower is None or follower.broker_epoch != broker_epoch:
            continue
        has_it = 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        if has_it and rack_of(broker_id) == rack:
            place = (follower.log_end_offset, follower.caught_up_ms, broker_id)
            best = place if best is None else max(best, place)
    return None if best is None else best[-1]
