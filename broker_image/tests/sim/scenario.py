"""Interleavings that are written down: a fleet without chance, led step by step to where a rule has to hold.

Every draw is 0: no delays beyond a millisecond, first come first served. What is to go wrong is said: who dies, which link is cut, whose watch
shows nothing, which transaction's answer is lost.
"""

from collections.abc import Callable

from logfleet.metadata.image import Partition
from logfleet.metadata.kinds.brokers import BROKER, FENCE, FENCED, FenceValue
from logfleet.metadata.store import Txn
from logfleet.replication.leader import Follower

from broker_image.tests.sim.broker import SimBroker
from broker_image.tests.sim.node import Settings
from broker_image.tests.sim.simulation import Case, Simulation
from broker_image.tests.sim.transactions.load import Style


class Scenario(Simulation):
    """A fleet of three brokers that has come up.

    leader, follower: of a partition that the controller has no replica of. style: of transactions, None for none.
    """

    def __init__(
        self,
        *,
        factor: int = 2,
        min_isr: int = 1,
        lag_max_ms: int = 2_000,
        style: Style | None = None,
    ) -> None:
        settings = Settings(
            partitions=3,
            replication_factor=factor,
            min_isr=min_isr,
            lag_max_ms=lag_max_ms,
            coordinator=-1 if style is None else 2,
            style=style,
        )
        super().__init__(Case(0, settings, (), (), {}), is_told=True)
        self.begin()
        control = self.fleet.store.image.controller
        assert control is not None
        self.controller = self.brokers[control.broker]
        partitions = self.fleet.partitions_in(self.fleet.store.image)
        self.index = next(
            index
            for index, each in enumerate(partitions)
            if self.controller.id not in each.replicas[:2]
        )
        first, second = partitions[self.index].replicas[:2]
        self.leader, self.follower = self.brokers[first], self.brokers[second]
        self.other = self.controller  # with three replicas it has the third

    @property
    def partition(self) -> Partition:
        """As the store has it."""
        return self.fleet.partitions_in(self.fleet.store.image)[self.index]

    @property
    def states(self) -> tuple[Partition, ...]:
        """Of all partitions."""
        return self.fleet.partitions_in(self.fleet.store.image)

    @property
    def isr(self) -> list[int]:
        return self.partition.isr_ids

    def end_offset(self, broker: SimBroker) -> int:
        return broker.disk.logs[self.index].end_offset

    def high_watermark(self, broker: SimBroker) -> int:
        return broker.leading.replicas[self.index].high_watermark

    # what happens

    def after(self, ms: int) -> None:
        self.kernel.run(self.kernel.now + ms)

    def until(self, holds: Callable[[], object], what: str) -> None:
        self.kernel.run(self.kernel.now + 30_000, lambda: bool(holds()))
        assert holds(), f"{what}; {self.state()}"

    def produce(self, records: int = 1, *, is_acks_all: bool = True) -> None:
        """Begin to; `acked` waits for it."""
        for _ in range(records):
            self.producers[self.index, is_acks_all].produce()

    def acked(self, records: int = 1) -> None:
        """Produce with acks=all, and see it acknowledged."""
        self.produce(records)
        producer = self.producers[self.index, True]
        self.until(lambda: producer.is_idle, "the producer is answered")

    def kill(self, broker: SimBroker, *, away_ms: int = 600_000) -> None:
        self.faults.kill(broker, away_ms)

    def power_loss(self, broker: SimBroker) -> None:
        """It loses all that is not flushed, and stays down."""
        self.faults.power(broker, 600_000)

    def stop_cleanly(self, broker: SimBroker) -> None:
        """It is asked to stop, and stops once it has waited in vain to be let go."""
        broker.leave(600_000)
        self.until(lambda: not broker.host.is_up, "it has stopped")

    def end_lease(self, broker: SimBroker) -> None:
        """Whoever knows that its process is gone ends its registration."""
        held = self.fleet.store.state.items[BROKER.key(broker.id)]
        self.fleet.store.revoke(self.fleet.store.host, held.lease)
        self.until(lambda: broker.id not in self.fleet.store.image.brokers, "it is gone")

    def fence(self, broker: SimBroker) -> None:
        """As a controller that takes it for dead while it is registered."""
        epoch = self.fleet.store.image.brokers[broker.id].epoch
        put = FENCE.put(broker.id, FenceValue(epoch, FENCED))
        self.fleet.store.txn(self.fleet.store.host, Txn(success=[put]))
        self.until(lambda: self.fleet.store.image.brokers[broker.id].is_fenced, "it is fenced")

    def cut(self, source: SimBroker, target: SimBroker) -> None:
        self.fleet.net.block(source.host.name, target.host.name)

    def mend(self, source: SimBroker, target: SimBroker) -> None:
        self.fleet.net.unblock(source.host.name, target.host.name)

    def cut_store(self, broker: SimBroker, way: str) -> None:
        """way: `out`, nothing of it reaches the store, or `in`, it hears nothing."""
        self.fleet.net.block(*self._to_store(broker, way))

    def mend_store(self, broker: SimBroker, way: str) -> None:
        self.fleet.net.unblock(*self._to_store(broker, way))
        self.fleet.store.poke()

    def _to_store(self, broker: SimBroker, way: str) -> tuple[str, str]:
        name = broker.host.name
        return (name, "store") if way == "out" else ("store", name)

    def hold_watch(self, broker: SimBroker, *, is_held: bool = True) -> None:
        """It sees nothing new for now."""
        self.fleet.store.hold_watch(broker.host, is_held=is_held)

    def reassign(self, *wanted: SimBroker) -> None:
        """Ask the controller for these replicas, and wait until the store has them."""
        ids = tuple(broker.id for broker in wanted)
        self.controller.controlling.reassign(self.index, ids)
        self.until(lambda: set(self.partition.replicas) == set(ids), "the replicas are others")

    def known(self, broker: SimBroker) -> Follower:
        """What the leader knows of this follower."""
        leading = self.leader.leading.replicas[self.index].leading
        assert leading is not None
        return leading.followers[broker.id]

    def is_pending(self) -> bool:
        """Whether a change of the ISR is in flight."""
        leading = self.leader.leading.replicas[self.index].leading
        return leading is not None and leading.pending is not None

    def lose_answers(self, broker: SimBroker, *after_ms: int | None) -> None:
        """Its next transactions are done after so long, and it does not hear of it; None: as ever."""
        self.fleet.store.scripted[broker.host.name] = list(after_ms)

    def drop_follower(self) -> None:
        """The follower is out of the ISR, by a record that it has not; it will fetch again once the link is mended."""
        self.cut(self.follower, self.leader)
        self.produce(1, is_acks_all=False)
        self.until(lambda: self.follower.id not in self.isr, "the leader takes it out")
        self.until(lambda: not self.is_pending(), "the leader hears of it")

    def rests(self) -> None:
        """All is healed, and the fleet comes to rest with whatever was acknowledged."""
        for broker in self.brokers.values():
            self.fleet.store.hold_watch(broker.host, is_held=False)
        self.faults.heal()
        self.fleet.net.open_all()
        self.fleet.store.poke()
        self.expect(60_000, self.has_converged, "the fleet comes to rest")
