"""The next state of a partition.

Its two writers share these rules: the leader and the controller.
"""

from collections.abc import Collection, Sequence

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, FENCE
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.metadata.store import Compare, created_at, modified_at
from logfleet.types import BrokerEpoch

Member = tuple[int, BrokerEpoch]
"""(Broker id, broker epoch): a member of an ISR is a registration, not just an id (KIP-903)."""


def effective_min_isr(state: PartitionValue) -> int:
    """The ISR size that acks=all and the high watermark need (KIP-966).

    At most the number of replicas without those that are being added. Otherwise raising a
    replication factor would stop producers; Kafka does not have this limit.
    """
    return max(1, min(state.min_isr, len(state.replicas) - len(state.adding)))


def with_isr(
    state: PartitionValue, isr: Sequence[Member], *, unclean: Collection[int] = ()
) -> PartitionValue:
    """The state with another ISR, in the order of `replicas`. The leader stays if it is in the ISR.

    A member that leaves an ISR that is then too small becomes an eligible leader: the high
    watermark stands still from then on, so that member holds all committed records. Once the ISR is
    large enough, no broker outside it is eligible. unclean: brokers that lost records; never
    eligible.
    """
    epochs = dict(isr)
    order = [broker_id for broker_id in state.replicas if broker_id in epochs]
    elr: tuple[int, ...] = ()
    if len(epochs) < effective_min_isr(state):
        eligible = {*state.elr, *(broker_id for broker_id, _ in state.isr)}
        eligible -= {*epochs, *unclean}
        elr = tuple(broker_id for broker_id in state.replicas if broker_id in eligible)
    leader = state.leader if state.leader in epochs else NO_LEADER
    return state.changed(
        isr=tuple((broker_id, epochs[broker_id]) for broker_id in order),
        elr=elr,
        leader=leader,
        leader_epoch=state.leader_epoch + (leader != state.leader),
    )


def still_active(image: ClusterImage, broker_id: int) -> tuple[Compare, ...]:
    """Compares: the broker's registration and fence are still those of the image."""
    return (
        created_at(BROKER.key(broker_id), image.brokers[broker_id].epoch),
        modified_at(FENCE.key(broker_id), image.fences[broker_id].revision),
    )
