"""Brokers that others can no longer connect to, and which to fence before their lease ends.

A refused connection is a hint, not a proof: a firewall or a full backlog refuses too. So it takes
two brokers that were connected to this registration, and a failed probe by the controller. A
mistake costs a change of leader: a broker fenced in error sees that, steps down and registers
again. No record depends on the time of fencing.
"""

from logfleet.controller.brokers.fencing import suspect_step
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.kinds.brokers import suspects_of
from logfleet.metadata.packing import Step
from logfleet.metadata.store import DeletePrefix, Txn
from logfleet.types import BrokerEpoch

REPORTERS_MIN = 2
"""One is enough if there is no other broker to report."""
WATCHED_MAX = 3
"""Brokers that each broker stays connected to: two can report even if one of three is gone."""


def watched_by(image: ClusterImage, broker_id: int) -> dict[int, BrokerEpoch]:
    """The brokers that a broker watches, with their epochs: the next ones in the circle of ids."""
    others = sorted(each for each in image.brokers if each != broker_id)
    after = [each for each in others if each > broker_id] + [
        each for each in others if each < broker_id
    ]
    return {each: image.brokers[each].epoch for each in after[:WATCHED_MAX]}


def to_be_probed(image: ClusterImage) -> dict[int, BrokerEpoch]:
    """Brokers, with their epochs, that enough others report as gone."""
    found = {}
    for broker in image.brokers.values():
        if broker.is_fenced:
            continue
        found_by = reporters(image, broker)
        if found_by and len(found_by) >= min(REPORTERS_MIN, len(image.brokers) - 1):
            found[broker.id] = broker.epoch
    return found


def reporters(image: ClusterImage, broker: Broker) -> set[int]:
    """Registered brokers that report this registration as gone."""
    return {
        reporter
        for (suspect, reporter), epoch in image.suspects.items()
        if suspect == broker.id and epoch == broker.epoch and reporter in image.brokers
    }


def fence_suspect(
    image: ClusterImage, controller_epoch: int, broker_id: int, broker_epoch: BrokerEpoch
) -> tuple[Txn, ...]:
    """Fence that registration unless it has ended."""
    step = suspect_step(image, broker_id, broker_epoch)
    if step is None:
        return ()
    return pack(controller_epoch, (Step(DeletePrefix(suspects_of(broker_id))), step))
