"""Three nodes of each side: our brokers in three zones on three members of etcd, and Kafkas that are broker and controller each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logfleet.wire.messages import DescribeClusterRequest

from e2e.bench.fleet.view import View
from e2e.bench.kafka.nodes import CONFIG as OF_BOTH
from e2e.bench.kafka.nodes import Cluster, KafkaNode
from e2e.harness.kafka import KafkaBroker, kafka_quorum
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import WireConnection

ZONES = ("a", "b", "c")
NODES = len(ZONES)
CONFIG = {
    **OF_BOTH,
    "min.insync.replicas": "2",
    "default.replication.factor": str(NODES),
    # leaders move when a row says so
    "auto.leader.rebalance.enable": "false",
}
OF_CONTROLLERS = 2
"""DescribeCluster's endpoint type (KIP-919)."""


@dataclass(frozen=True)
class Fleet:
    """Nodes 1 to 3, ready. controller: whose id it is now."""

    cluster: Cluster
    controller: Callable[[], int]

    def node(self, node_id: int) -> Broker | KafkaNode:
        return self.cluster.nodes[node_id - 1]

    def others(self, node_id: int) -> list[Broker | KafkaNode]:
        return [node for node in self.cluster.nodes if node is not self.node(node_id)]

    def view(self, *without: int) -> View:
        """What the nodes say, but for these."""
        gone = [self.node(each) for each in without]
        return View([node.port for node in self.cluster.nodes if node not in gone])


def our_fleet(rig: Rig, prefix: Sequence[str], made: type[Broker]) -> Fleet:
    fleet = rig.fleet(
        NODES, zones=ZONES, config=CONFIG, etcd_members=NODES, prefix=prefix, made=made
    )
    cluster = Cluster("ours", fleet.brokers, fleet.etcd_members)
    return Fleet(cluster, lambda: View([cluster.nodes[0].port]).controller())


def kafka_fleet(rig: Rig, prefix: Sequence[str]) -> Fleet:
    kafkas = kafka_quorum(rig.directory, ZONES, controllers=NODES, **CONFIG)
    nodes = [rig.own(KafkaNode(kafka, kafka.directory.name)) for kafka in kafkas]
    for node in nodes:
        node.prefix = list(prefix)
        node.launch()
    for node in nodes:
        node.wait_ready()
    return Fleet(Cluster("kafka", nodes), lambda: _leader_of_quorum(kafkas))


def _leader_of_quorum(kafkas: Sequence[KafkaBroker]) -> int:
    """Its brokers tell clients of any of themselves as the controller; its controllers tell the truth."""
    with WireConnection(kafkas[0].controller_port) as connection:
        answer = connection.call(DescribeClusterRequest(endpoint_type=OF_CONTROLLERS), 1)
    assert answer.error_code == 0, answer
    return int(answer.controller_id)


@contextmanager
def started(
    side: str, directory: Path, prefix: Sequence[str] = (), made: type[Broker] = Broker
) -> Iterator[Fleet]:
    """A fresh fleet whose nodes all know one another; ended with the block. prefix: of all its programs. made: our brokers."""
    rig = Rig(directory)
    try:
        fleet = our_fleet(rig, prefix, made) if side == "ours" else kafka_fleet(rig, prefix)
        fleet.view().until_there(NODES)
        yield fleet
    finally:
        rig.close()
