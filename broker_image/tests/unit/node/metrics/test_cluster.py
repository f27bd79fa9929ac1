"""The controller's metrics of the cluster."""

from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.config.throttle_keys import Side
from logfleet.controller.brokers import leaving
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.packing import Step
from logfleet.node.metrics.cluster import cluster as figures
from logfleet.node.metrics.partitions import replication
from logfleet.node.partitions.traffic import Traffic
from logfleet.telemetry.decisions import Decision, Decisions, Kind

from broker_image.tests.unit.controller.cluster_rig import Cluster
from broker_image.tests.unit.node.metrics.metric_values import MetricValues, metric_values


def controller(*, is_controller: bool = True) -> Any:
    return SimpleNamespace(is_controller=is_controller, failed_terms=2)


def decisions() -> Decisions:
    """Five elections, one of them unclean, and one that found no leader."""
    made = Decisions(1, lambda: 0)
    for _ in range(4):
        made.record(Decision(Kind.ELECTION, "c", "t", 0, broker=1))
    made.record(Decision(Kind.UNCLEAN_ELECTION, "c", "t", 0, broker=1))
    made.record(Decision(Kind.ELECTION, "nobody else may lead", "t", 0))
    return made


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 and 2 may lead, 3 is draining, 4 has stopped, 5 is not admitted yet."""
    made = Cluster()
    made.start(1, 2, 3, 4)
    made.create("t", -1, assignments=((0, (1, 2, 3)),))
    made.create("u", -1, assignments=((0, (4,)),))
    made.stop(4)
    made.put(BROKER.key(3), BrokerValue("i", (), leaving=True))
    ((_, step),) = leaving.decide(made.image)
    assert isinstance(step, Step)
    made.do([step])
    made.register(5)
    return made


def counts(values: MetricValues) -> list[float | None]:
    names = ("active_brokers", "fenced_brokers", "draining_brokers", "topics", "offline_partitions")
    return [values(f"logfleet_{name}") for name in names]


def test_the_controller_reports_brokers_by_their_state(cluster: Cluster) -> None:
    """As Kafka, which counts a draining broker as active, and a stopped one as fenced."""
    values = metric_values(figures(cluster.image, controller(), decisions()))
    assert counts(values) == [3, 2, 1, 2, 1]
    assert values("logfleet_leader_elections_total") == 5
    assert values("logfleet_unclean_leader_elections_total") == 1


def test_a_broker_that_is_not_the_controller_reports_zeros_but_for_what_it_did_as_one(
    cluster: Cluster,
) -> None:
    values = metric_values(figures(cluster.image, controller(is_controller=False), decisions()))
    assert counts(values) == [0, 0, 0, 0, 0]
    assert values("logfleet_leader_elections_total") == 5
    assert values("logfleet_controller_failed_terms_total") == 2


def test_isr_changes_and_replicated_bytes_are_reported() -> None:
    table: Any = SimpleNamespace(replicated=Traffic(bytes_in=10, bytes_out=20))
    writer: Any = SimpleNamespace(shrinks=1, expands=2, failed=3)
    throttle: Any = SimpleNamespace(
        between_brokers=[
            SimpleNamespace(side=Side.LEADER, bytes=30, is_limited=True, in_force=7.0),
            SimpleNamespace(side=Side.FOLLOWER, bytes=40, is_limited=True, in_force=7.0),
        ]
    )
    values = metric_values(replication(table, writer, throttle))
    changes = ("isr_shrinks", "isr_expands", "isr_updates_failed")
    assert [values(f"logfleet_{name}_total") for name in changes] == [1, 2, 3]
    assert values("logfleet_replication_bytes_in_total") == 10
    assert values("logfleet_replication_bytes_out_total") == 20
    throttled = "logfleet_replication_throttled_bytes_total"
    assert [values(throttled, side=side) for side in ("leader", "follower")] == [30, 40]
    in_force = "logfleet_replication_throttle_bytes_per_second"
    assert [values(in_force, side=side) for side in ("leader", "follower")] == [7, 7]
