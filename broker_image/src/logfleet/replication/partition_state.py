"""The next state of a partition, as both its writers make it: the leader, when the ISR changes, and the controller."""

from collections.abc import Collection, Sequence

from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import NO_LEADER, PartitionValue
from logfleet.metadata.store import Compare, created_at, modified_at

Member = tuple[int, int]
"""A broker's id and its broker epoch: who is in sync is this very registration (KIP-903)."""


def effective_min_isr(state: PartitionValue) -> int:
    """How many members the ISR needs for acks=all and for the high watermark to move (KIP-966).

    Never more than the replicas that are not being added: else raising a replication factor would stop producers (a difference to Kafka).
    """
    return max(1, min(state.min_isr, len(state.replicas) - len(state.adding)))


def with_isr(
    state: PartitionValue, isr: Sequence[Member], *, unclean: Collection[int] = ()
) -> PartitionValue:
    """The state with another ISR, in the order of `replicas`; leader and leader epoch stay, if the leader is still in it.

    Who leaves an ISR that becomes too small stays an eligible leader: as the high watermark stands still from then on, it holds all that
    is committed. Once the ISR is large enough again nobody else is eligible. unclean: brokers that lost records, so they are neither.
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
    """That a broker's registration, and what the controller holds it for, are still what the image says."""
    return (
        created_at(keys.broker(broker_id), image.brokers[broker_id].epoch),
        modified_at(keys.fence(broker_id), image.fences[broker_id].revision),
    )
