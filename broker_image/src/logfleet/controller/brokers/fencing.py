"""Which registrations of brokers are active: the controller's writes to `fence/ID`.

Level-based: each function compares an image with the state that should be and returns the missing
writes, so a new controller, a missed event and a repeated call all end the same way. The order
makes sure that no former registration stays in an ISR (KIP-841, KIP-903). First, a registration
that has ended is fenced or replaced by a new one; from then on no leader can add it to an ISR,
because that compares both. The image that shows this names every ISR that has it. It is removed
from all of them. Only then the broker's new registration becomes active. If its logs may have lost
records (`unclean`), it is no eligible leader either by then (KIP-966).
"""

from collections.abc import Iterator

from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCE, FENCED, FenceValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Compare, absent, created_at, modified_at
from logfleet.types import BrokerEpoch


def fence_steps(image: ClusterImage) -> Iterator[Step]:
    """Fence brokers that are gone."""
    for broker_id, fence in image.fences.items():
        if fence.state != FENCED and broker_id not in image.brokers:
            is_gone = absent(BROKER.key(broker_id))
            yield _step(image, broker_id, fence.broker_epoch, FENCED, is_gone)


def newcomers(image: ClusterImage) -> list[Broker]:
    """Registrations that may become active.

    Not one that was active and is fenced now: its broker has to register again. Nor one that does
    not support the finalized feature level: a version older than feature levels does not check it
    when it registers.
    """
    level = image.features.level
    return [
        broker for broker in image.brokers.values() if broker.is_new and broker.value.level >= level
    ]


def admission_steps(image: ClusterImage) -> Iterator[Step]:
    """Make newcomers active. In the image every partition must be up to date."""
    for broker in newcomers(image):
        registered = created_at(BROKER.key(broker.id), broker.epoch)
        yield _step(image, broker.id, broker.epoch, ACTIVE, registered)


def suspect_step(image: ClusterImage, broker_id: int, broker_epoch: BrokerEpoch) -> Step | None:
    """Fence a registration that still exists: neither other brokers nor the controller reach it.

    None if it has ended or is fenced already. If the broker is alive it sees the fence, stops
    leading, and registers again.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch or broker.is_fenced:
        return None
    registered = created_at(BROKER.key(broker_id), broker_epoch)
    return _step(image, broker_id, broker_epoch, FENCED, registered)


def _step(
    image: ClusterImage, broker_id: int, broker_epoch: BrokerEpoch, state: str, compare: Compare
) -> Step:
    """Write the fence unless it was written meanwhile: a duplicate applied late changes nothing."""
    put, fence = FENCE.put(broker_id, FenceValue(broker_epoch, state)), image.fences.get(broker_id)
    unchanged = modified_at(put.key, 0 if fence is None else fence.revision)
    return Step(put, (compare, unchanged))
