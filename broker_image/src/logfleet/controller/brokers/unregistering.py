"""UnregisterBroker (KIP-631): the controller forgets a broker that will not come back.

Kafka forgets any broker, even one that runs or has replicas, and leaves the rest to the operator.
Here it is refused until the broker has stopped and has no replicas, so that no partition waits for
an unknown broker.
"""

from collections.abc import Iterator

from logfleet.controller.brokers.cordons import CORDONED
from logfleet.controller.changes.topics import without_broker
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, DIRECTORIES, FENCE
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.metadata.packing import Step
from logfleet.metadata.store import absent, modified_at
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal


def unregister(image: ClusterImage, broker_id: int) -> tuple[Step, ...] | Refusal:
    """The writes, or BROKER_ID_NOT_REGISTERED as in Kafka, or INVALID_REQUEST by our own rule."""
    fence = image.fences.get(broker_id)
    if broker_id in image.brokers:
        message = f"Broker {broker_id} is running: stop it first."
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if fence is None:
        message = f"Broker ID {broker_id} is not currently registered."
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    held = next(_held(image, broker_id), None)
    if held is not None:
        message = (
            f"Broker {broker_id} holds a replica of {held}: delete the topic first, or bring the "
            "broker back."
        )
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    unchanged = absent(BROKER.key(broker_id)), modified_at(FENCE.key(broker_id), fence.revision)
    forgotten = (
        without_broker(deleted, broker_id)
        for deleted in image.deleted.values()
        if broker_id in deleted.brokers
    )
    return (
        *forgotten,
        *_uncordoned(image, broker_id),
        Step(DIRECTORIES.delete(broker_id), unchanged),
        Step(FENCE.delete(broker_id), unchanged),
    )


def _uncordoned(image: ClusterImage, broker_id: int) -> Iterator[Step]:
    """Remove the cordon: it was meant for this broker, not for the next one with its id."""
    stored = image.configs_of_broker(broker_id)
    if CORDONED in stored.values:
        left = {name: value for name, value in stored.values.items() if name != CORDONED}
        yield BROKER_CONFIG.change(broker_id, left or None, stored.revision)


def _held(image: ClusterImage, broker_id: int) -> Iterator[str]:
    for topic in image.topics():
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                yield f"{topic.name}-{index}"
