"""That a "yes" of `controller.brokers.stop_check` is true: what it allowed takes no partition offline, and none below its min ISR.

A yes speaks of one act over one image. Of a partition it is judged until the brokers that may stop have left the ISR, and given up as soon as
something else happened: somebody left who counted as staying, min.insync.replicas is another one, or a reassignment is done.
"""

import msgspec
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.replication.partition_state import Member, effective_min_isr

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Kernel, SimulationError


class Permission(msgspec.Struct, frozen=True):
    """Of one partition. going: members of the ISR that may stop; staying: those that it rests on. both by registration. needed: its effective min ISR."""

    going: frozenset[Member]
    staying: frozenset[Member]
    min_isr: int
    needed: int


class Permissions:
    """Those that are not used up, by partition."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._given: dict[int, list[Permission]] = {}

    def give(
        self,
        image: ClusterImage,
        going_down: set[int],
        states: dict[int, Partition],
        *,
        only_curable: bool,
    ) -> None:
        """These brokers may stop, by this image. states: as the store has them. only_curable: nobody asked for what waiting cannot cure (leaving)."""
        for index, seen in naming.numbered(image):
            others = len(set(seen.replicas) - going_down)
            going = frozenset(member for member in seen.isr if member[0] in going_down)
            if not going or not seen.has_leader:
                continue
            if only_curable and others < effective_min_isr(seen):
                continue
            staying = frozenset(member for member in seen.isr if self._stays(image, index, member))
            given = Permission(going, staying - going, seen.min_isr, effective_min_isr(seen))
            if _holds(given, states[index]):
                self._given.setdefault(index, []).append(given)

    def _stays(self, image: ClusterImage, index: int, member: Member) -> bool:
        broker = image.brokers.get(member[0])
        is_well = broker is not None and broker.epoch == member[1] and broker.is_active
        place = naming.topic_of(index), naming.index_of(index)
        return is_well and not image.is_offline(member[0], *place)

    def changed(self, index: int, after: Partition) -> None:
        """A partition has another state."""
        given = [each for each in self._given.get(index, ()) if _holds(each, after)]
        for each in given:
            if not after.has_leader or len(after.isr) < effective_min_isr(after):
                raise SimulationError(
                    f"may-i: partition {index}: {sorted(each.going)} were allowed to stop, beside {sorted(each.staying)}; "
                    f"now leader {after.leader}, isr {after.isr}, min ISR {effective_min_isr(after)}"
                )
            if each.going.isdisjoint(after.isr):
                self._kernel.sometimes("what was allowed to stop left nothing offline")
        self._given[index] = [each for each in given if not each.going.isdisjoint(after.isr)]


def _holds(given: Permission, state: Partition) -> bool:
    """Whether nothing else has happened to the partition."""
    is_asked_alike = given.min_isr == state.min_isr and given.needed >= effective_min_isr(state)
    return is_asked_alike and given.staying <= set(state.isr)
