"""How a broker leaves (Kafka: controlled shutdown): it says that it would, is let go, hands over, and stops.

1. It writes `leaving` into its registration.
2. The controller holds it for `draining` once nothing speaks against that which waiting could cure. This is a fact in the store, decided while
   everybody else who drains or is fenced counts as gone, so that two brokers never get leave of each other's replicas.
3. As it is not active any more, elections give what it leads to others, and take it out of every ISR that is large enough without it
   (`logfleet.replication.election`).
4. It stops when there is nothing of that left (`may_exit`), or when it has no more time.
"""

from collections.abc import Iterator

from logfleet.control.brokers.may_i import Objection, objections
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import DRAINING, FenceValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Put, created_at, modified_at
from logfleet.replication.election import next_state


def decide(image: ClusterImage) -> Iterator[tuple[int, Step | Objection]]:
    """Of brokers that would leave: what speaks against it, or the write that lets it. Nobody comes after that: the image is an old one then."""
    for broker_id, broker in sorted(image.brokers.items()):
        if not broker.value.leaving or not broker.is_active:
            continue
        against = objections(image, {broker_id})
        objection = next((each for each in against if each.can_heal), None)
        if objection is not None:
            yield broker_id, objection
            continue
        compares = (
            created_at(keys.broker(broker_id), broker.epoch),
            modified_at(keys.fence(broker_id), image.fences[broker_id].revision),
        )
        value = keys.encode(FenceValue(broker.epoch, DRAINING))
        yield broker_id, Step(Put(keys.fence(broker_id), value), compares)
        return


def may_exit(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker that was let go has handed over all that somebody else could take."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_draining:
        return False
    return all(
        broker_id not in partition.isr_ids
        or next_state(partition, image.brokers, min_isr=partition.min_isr) is None
        for topic in image.topics()
        for partition in topic.partitions
    )
