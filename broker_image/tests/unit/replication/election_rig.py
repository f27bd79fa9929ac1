"""A partition of three replicas, and brokers as the controller finds them."""

from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import ACTIVE, BrokerValue
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.election import next_state
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

NEW = ""
MIN_ISR = 2
LED = PartitionValue(
    (1, 2, 3),
    ((1, BrokerEpoch(10)), (2, BrokerEpoch(20)), (3, BrokerEpoch(30))),
    1,
    LeaderEpoch(4),
    PartitionEpoch(9),
    MIN_ISR,
    last_leader=1,
    last_directory="d1",
)


def broker(
    broker_id: int,
    epoch: int = 0,
    state: str = ACTIVE,
    last_epoch: BrokerEpoch | None = None,
    **said,
) -> Broker:
    """Its epoch is ten times its id, its only log directory is named after it."""
    value = BrokerValue("i", (), **{"directories": (f"d{broker_id}",), **said})
    return Broker(
        broker_id,
        BrokerEpoch(epoch or 10 * broker_id),
        value,
        state,
        last_epoch=last_epoch,
    )


def brokers(*several: Broker) -> dict[int, Broker]:
    return {each.id: each for each in several}


ALL = brokers(broker(1), broker(2), broker(3))


def after(state: PartitionValue, *several: Broker, **options) -> PartitionValue:
    options.setdefault("min_isr", state.min_isr)
    there = brokers(*several)
    value = next_state(state, there, **options)
    assert value is not None, "something was to be done"
    assert value.partition_epoch == state.partition_epoch + 1
    assert next_state(value, there, **options) is None, "and then it is done"
    return value


def gone(state: PartitionValue = LED) -> PartitionValue:
    """All three died at once."""
    return after(state)
