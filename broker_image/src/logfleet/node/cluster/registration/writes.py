"""The store writes of a registration, and what the image shows of it."""

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, FENCED, BrokerValue
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.metadata.store import Get, KeyValue, Put, Txn, absent, modified_at, value_is
from logfleet.types import BrokerEpoch


def ended_in(image: ClusterImage, broker_id: int, epoch: BrokerEpoch) -> str:
    """Why the registration of that epoch has ended, as `image` shows.

    Empty if it has not, or the image is older.
    """
    if image.revision < epoch:
        return ""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "the registration is gone"
    if broker.epoch != epoch:
        return "another process has registered this id"
    fence = image.fences.get(broker_id)
    if fence and fence.broker_epoch == epoch and fence.state == FENCED:
        return "the controller has fenced this broker"
    return ""


def features_of(held: KeyValue | None) -> FeaturesValue:
    """The cluster's feature level. held: its key, None if nothing is stored."""
    if held is None:
        return FeaturesValue()
    return FEATURES.decode(held.value)


def claim_txn(broker_id: int, value: BrokerValue, lease: int, features: KeyValue | None) -> Txn:
    """Create the registration, if there is none and the feature level is as it was read.

    It writes the level's key again, unchanged, so that no raise of the level can miss this broker
    (`feature_level`).
    """
    key = BROKER.key(broker_id)
    if features is None:
        unchanged, level = absent(FEATURES.prefix), FEATURES.encode(FeaturesValue())
    else:
        unchanged, level = value_is(FEATURES.prefix, features.value), features.value
    puts = Put(key, BROKER.encode(value), lease), Put(FEATURES.prefix, level)
    return Txn((absent(key), unchanged), puts, (Get(key),))


def update_txn(key: str, value: BrokerValue, lease: int, revision: int) -> Txn:
    """Write the registration again, if it is as this process wrote it last, at `revision`."""
    put = Put(key, BROKER.encode(value), lease)
    return Txn((modified_at(key, revision),), (put,), (Get(key),))


def value_of(held: KeyValue) -> BrokerValue:
    return BROKER.decode(held.value)


def holder(held: KeyValue) -> str:
    value = value_of(held)
    where = ", ".join(f"{each.name}://{each.host}:{each.port}" for each in value.listeners)
    return f"incarnation {value.incarnation} at {where or 'no address'}"
