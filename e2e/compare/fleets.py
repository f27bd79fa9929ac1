"""Three nodes of Kafka and three brokers of ours, alike in everything that answers depend on; started when the first case needs them."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from e2e.compare.brokers import CONFIG as OF_ALL
from e2e.compare.fleet_side import NODES, RACKS, FleetSide
from e2e.harness.kafka import KafkaBroker, kafka_quorum
from e2e.harness.processes import Broker, Rig

CONFIG: Final = {
    **OF_ALL,
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "6000",
    "transaction.state.log.num.partitions": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""Leaders move only when a case says so. A silent broker of Kafka is soon fenced; ours holds a lease of 3 s."""


class KafkaFleet:
    """Nodes 1 to 3, in racks of their own. Only the first is a controller as well: the others can be stopped without an election."""

    def __init__(self, directory: Path) -> None:
        nodes = kafka_quorum(directory, RACKS, controllers=1, **CONFIG)
        self.nodes = dict(zip(NODES, nodes, strict=True))

    def start(self) -> None:
        """All at once: each needs seconds for itself. A broker waits for its controller."""
        with ThreadPoolExecutor(len(NODES)) as threads:
            list(threads.map(KafkaBroker.format, self.nodes.values()))
            list(threads.map(KafkaBroker.start, self.nodes.values()))

    def close(self) -> None:
        for node in reversed(self.nodes.values()):
            node.close()


class FleetPair:
    """Both fleets until the block ends."""

    kafka: FleetSide
    ours: FleetSide

    def __init__(self, directory: Path) -> None:
        self._rig = Rig(directory / "ours")
        self._kafka = KafkaFleet(directory / "kafka")
        self._ours: dict[int, Broker] = {}

    def __enter__(self) -> Self:
        try:
            fleet = self._rig.fleet(len(NODES), zones=RACKS, config=CONFIG)
            self._ours = dict(zip(NODES, fleet.brokers, strict=True))
            self._kafka.start()
            self.kafka = FleetSide("kafka", {n: each.port for n, each in self._kafka.nodes.items()})
            self.ours = FleetSide("ours", {n: each.port for n, each in self._ours.items()})
            for side in self.sides:
                side.await_brokers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for side in self.sides:
            side.close()
        self._end()

    @property
    def sides(self) -> tuple[FleetSide, FleetSide]:
        return self.kafka, self.ours

    def stop(self, node: int) -> None:
        """In order, on both sides; the others know when this returns."""
        self._kafka.nodes[node].stop()
        self._ours[node].terminate()
        self._gone(node)

    def kill(self, node: int) -> None:
        self._kafka.nodes[node].kill()
        self._ours[node].kill()
        self._gone(node)

    def silence(self, node: int) -> None:
        """Stopped by a signal, its connections open: the others do not know yet."""
        process = self._kafka.nodes[node].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._ours[node].pause()
        for side in self.sides:
            side.alive.discard(node)

    def start(self, node: int) -> None:
        """Again; the others know when this returns, and it may have to catch up."""
        self._ours[node].launch()
        self._kafka.nodes[node].start()
        for side in self.sides:
            side.alive.add(node)
            side.await_brokers()
        self._ours[node].wait_ready()

    def _gone(self, node: int) -> None:
        for side in self.sides:
            side.alive.discard(node)
            side.await_brokers()

    def _end(self) -> None:
        self._kafka.close()
        self._rig.close()
