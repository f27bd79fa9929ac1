"""The throttle's rates follow what Produce requests took in the last second."""

from logfleet.control.configs import broker_config
from logfleet.metadata.image import ClusterImage
from logfleet.node.quotas.replication_throttle import ReplicationThrottle
from logfleet.node.quotas.yielding_throttle import YieldingThrottle
from logfleet.telemetry.request_stats import RequestStats

RATE = 1_000_000


def throttle() -> ReplicationThrottle:
    made = ReplicationThrottle(broker_config({"node.id": "1"}), ClusterImage)
    made.leader.rate = made.follower.rate = RATE
    return made


def test_a_second_in_which_producers_waited_while_replicas_were_copied_takes_from_the_rate() -> (
    None
):
    stats, quotas = RequestStats(), throttle()
    watch = YieldingThrottle(quotas, lambda: stats)
    for _ in range(3):
        for _ in range(100):
            stats.waited(0.0, 0.001)
        watch.look()
    for _ in range(100):
        stats.waited(0.0, 0.2)
    quotas.follower.record(1_000, 0)
    watch.look()
    assert quotas.leader.in_force == quotas.follower.in_force < 0.7 * RATE
    watch.look()
    assert quotas.leader.in_force == RATE, "nothing is copied any more"
