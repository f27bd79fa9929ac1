"""Whether a broker is ready: whether another one may stop on its account.

Kubernetes counts ready pods before it lets another one go (PodDisruptionBudget), so a broker that lacks records others lead does not count.
"""

from logfleet.metadata.image import Broker, Topic


def out_of_sync(topic: Topic, broker_id: int) -> int:
    """How many replicas a broker should have in sync and has not.

    Not those that are being added, which nobody counts on yet, nor those without a leader, which no waiting cures: a fleet that starts as a
    whole would wait for itself.
    """
    missing = 0
    for partition in topic.partitions:
        for member, _ in partition.isr:
            if member == broker_id:
                break  # nearly always
        else:
            missing += (
                broker_id in partition.replicas
                and broker_id not in partition.adding
                and partition.has_leader
            )
    return missing


def not_ready(broker: Broker | None, broker_epoch: int, missing: int) -> str | None:
    """Why a broker is no full member, None if it is.

    broker: what the image says of it. broker_epoch: of the registration that the living process made last. missing: replicas that are out
    of sync. The broker's own registration does not count: while the metadata store cannot be reached the image stands still, and so does the verdict.
    """
    if broker is None or broker.epoch != broker_epoch:
        return "not registered with the cluster: the metadata store cannot be reached, or is behind"
    if broker.is_draining:
        return "it leaves"
    if not broker.is_active:
        return "the controller does not let it lead yet"
    return f"{missing} of its replicas are not in sync yet" if missing else None
