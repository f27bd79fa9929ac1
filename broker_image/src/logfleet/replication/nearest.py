"""From which replica a consumer had better read: one in its own rack (KIP-392; ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector)."""

from collections.abc import Callable
from typing import Final

from logfleet.replication.leader import LeaderReplicas

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"


def nearest_replica(
    replicas: LeaderReplicas, offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """The follower that a consumer in `rack` which reads from `offset` on is sent to; None if it stays with the leader.

    It is in sync, has that offset, and has got furthest of those in the rack. rack_of: of a broker that the consumer can reach, else None.
    """
    if not rack or rack_of(replicas.me) == rack:
        return None
    best: tuple[int, int, int] | None = None
    for broker_id, broker_epoch in replicas.state.isr:
        follower = replicas.followers.get(broker_id)  # not the leader
        if follower is None or follower.broker_epoch != broker_epoch:
            continue
        has_it = 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        if has_it and rack_of(broker_id) == rack:
            place = (follower.log_end_offset, follower.caught_up_ms, broker_id)
            best = place if best is None else max(best, place)
    return None if best is None else best[-1]
