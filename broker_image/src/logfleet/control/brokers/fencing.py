"""Which registrations of brokers count: what the controller writes to `fence/ID`.

Level-based: each function compares an image with what should be and returns the writes that are missing, so a new controller, a missed event
and a repeated call all end the same way. The order closes the set of those who may be in sync (KIP-841, KIP-903): a registration that is over
is fenced, or there is a new one; from then on no leader can add it to an ISR, as that compares both; the image that shows it names every ISR that it is in;
it is taken out of all of them; and only then a new registration of that broker is let in. One whose logs may have lost records
(`unclean`) is no eligible leader any more either by then (KIP-966).
"""

from collections.abc import Iterator

from logfleet.metadata import keys
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.keys import ACTIVE, FENCED, FenceValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Compare, Put, absent, created_at, modified_at


def fence_steps(image: ClusterImage) -> Iterator[Step]:
    """Brokers that are gone become fenced."""
    for broker_id, fence in image.fences.items():
        if fence.state != FENCED and broker_id not in image.brokers:
            is_gone = absent(keys.broker(broker_id))
            yield _step(image, broker_id, fence.broker_epoch, FENCED, is_gone)


def newcomers(image: ClusterImage) -> list[Broker]:
    """One that was let in once, and is fenced now, is none: its broker has to register anew.

    Nor is one that cannot do the finalized feature level: a version from before there were any does not look at it when it registers.
    """
    level = image.features.level
    return [
        broker for broker in image.brokers.values() if broker.is_new and broker.value.level >= level
    ]


def admission_steps(image: ClusterImage) -> Iterator[Step]:
    """Newcomers become active. Of an image by which every partition is as it should be."""
    for broker in newcomers(image):
        registered = created_at(keys.broker(broker.id), broker.epoch)
        yield _step(image, broker.id, broker.epoch, ACTIVE, registered)


def suspect_step(image: ClusterImage, broker_id: int, broker_epoch: int) -> Step | None:
    """Fence a registration that still stands: brokers report that they do not reach it, nor does the controller.

    None if it counts no longer. Should it be alive, it sees this, leads nothing from then on, and registers anew.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch or broker.is_fenced:
        return None
    registered = created_at(keys.broker(broker_id), broker_epoch)
    return _step(image, broker_id, broker_epoch, FENCED, registered)


def _step(
    image: ClusterImage, broker_id: int, broker_epoch: int, state: str, compare: Compare
) -> Step:
    """If nobody has written the fence since: a duplicate that the store applies late changes nothing."""
    key, fence = keys.fence(broker_id), image.fences.get(broker_id)
    unchanged = modified_at(key, 0 if fence is None else fence.revision)
    return Step(Put(key, keys.encode(FenceValue(broker_epoch, state))), (compare, unchanged))
