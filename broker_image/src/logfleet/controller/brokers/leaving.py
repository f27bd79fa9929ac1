"""How a broker leaves (Kafka: controlled shutdown).

1. It writes `leaving` into its registration.
2. The controller marks it `draining` once there is no objection that waiting could remove. That is
written to the store, and every broker that drains or is fenced counts as gone in the decision, so
that two brokers never leave on account of each other's replicas.
3. As it is not active any more, elections give its leaderships to others, and remove it from every
ISR that is large enough without it (`logfleet.replication.election`).
4. It stops when none of these are left (`may_exit`), or when its time is up.
"""

from collections.abc import Iterator

from logfleet.controller.brokers.stop_check import Objection, objections
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, DRAINING, FENCE, FenceValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import created_at, modified_at
from logfleet.replication.election import next_state


def decide(image: ClusterImage) -> Iterator[tuple[int, Step | Objection]]:
    """For each broker that wants to leave, the objection, or the write that lets it go.

    Stops after the first write: the image is outdated then.
    """
    for broker_id, broker in sorted(image.brokers.items()):
        if not broker.value.leaving or not broker.is_active:
            continue
        against = objections(image, {broker_id})
        objection = next((each for each in against if each.can_heal), None)
        if objection is not None:
            yield broker_id, objection
            continue
        compares = (
            created_at(BROKER.key(broker_id), broker.epoch),
            modified_at(FENCE.key(broker_id), image.fences[broker_id].revision),
        )
        yield broker_id, Step(FENCE.put(broker_id, FenceValue(broker.epoch, DRAINING)), compares)
        return


def may_exit(image: ClusterImage, broker_id: int) -> bool:
    """Whether a draining broker has handed over everything that another broker can take."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_draining:
        return False
    return all(
        broker_id not in partition.isr_ids
        or next_state(partition, image.brokers, min_isr=partition.min_isr) is None
        for topic in image.topics()
        for partition in topic.partitions
    )
