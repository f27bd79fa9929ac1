"""Whether a broker is ready, so that another one may stop.

Kubernetes counts ready pods before it evicts another (PodDisruptionBudget), so a broker that lacks
records which others lead is not ready.
"""

from logfleet.metadata.image import Broker, Topic
from logfleet.types import BrokerEpoch


def out_of_sync(topic: Topic, broker_id: int) -> int:
    """How many replicas of the topic should be in sync on this broker and are not.

    Replicas being added do not count, because nobody relies on them yet; nor do those without a
    leader, because waiting does not help: a fleet that starts as a whole would wait for itself.
    """
    missing = 0
    for partition in topic.partitions:
        for member, _ in partition.isr:
            if member == broker_id:
                break  # the usual case: the broker is in the ISR
        else:
            missing += (
                broker_id in partition.replicas
                and broker_id not in partition.adding
                and partition.has_leader
            )
    return missing


def not_ready(broker: Broker | None, broker_epoch: BrokerEpoch, missing: int) -> str | None:
    """Why a broker is not ready; None if it is.

    broker: from the image. broker_epoch: of the running process' last registration. missing:
    replicas that are out of sync. The process' own registration is not enough: while the metadata
    store cannot be reached the image does not change, and neither does the result.
    """
    if broker is None or broker.epoch != broker_epoch:
        return "not registered with the cluster: the metadata store cannot be reached, or is behind"
    if broker.is_draining:
        return "it is leaving"
    if not broker.is_active:
        return "the controller does not let it lead yet"
    return f"{missing} of its replicas are not in sync yet" if missing else None
