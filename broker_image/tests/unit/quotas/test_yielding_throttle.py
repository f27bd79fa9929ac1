"""The throttle's rates follow what Produce requests took in the last second."""

from collections.abc import Coroutine
from typing import Any

import pytest
from logfleet.config.broker import broker_config
from logfleet.config.throttle_keys import Side
from logfleet.metadata.image import ClusterImage
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.quotas.yielding_throttle import YieldingThrottle
from logfleet.telemetry.request_stats import RequestStats

RATE = 1_000_000


def throttle() -> ReplicationThrottle:
    made = ReplicationThrottle(broker_config({"node.id": "1"}), ClusterImage)
    for quota in made.between_brokers:
        quota.rate = RATE
    return made


@pytest.mark.parametrize("side", [Side.FOLLOWER, Side.ADDED])
def test_a_second_in_which_producers_waited_while_replicas_were_copied_takes_from_the_rate(
    side: Side,
) -> None:
    stats, quotas = RequestStats(), throttle()
    watch = YieldingThrottle(quotas.between_brokers, stats)
    for _ in range(3):
        for _ in range(100):
            stats.waited(0.0, 0.001)
        watch.adjust()
    for _ in range(100):
        stats.waited(0.0, 0.2)
    quotas.quotas[side].record(1_000, 0)
    watch.adjust()
    (in_force,) = {quota.in_force for quota in quotas.between_brokers}
    assert in_force < 0.7 * RATE
    watch.adjust()
    (in_force,) = {quota.in_force for quota in quotas.between_brokers}
    assert in_force == RATE, "nothing is copied any more"


@pytest.mark.parametrize("yields", ["true", "false"])
def test_a_broker_gives_way_only_if_it_is_configured_so(yields: str) -> None:
    key = "logfleet.replication.throttle.yields"
    config = broker_config({"node.id": "1", key: yields})
    spawned = []

    def spawn(name: str, work: Coroutine[Any, Any, None]) -> None:
        spawned.append(name)
        work.close()

    ReplicationThrottle(config, ClusterImage).start(spawn, RequestStats())
    assert spawned == (["replication-throttle"] if yields == "true" else [])
