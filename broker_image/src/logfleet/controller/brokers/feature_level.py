"""The feature level of a fleet: which formats, unreadable to earlier versions, brokers may write.

KIP-584, KIP-1022. An upgrade has two phases. First every broker is replaced by one of a later
version; they still write only what the earlier version reads, so the upgrade can be undone. Then,
once all brokers support it, the *level* of the one feature `logfleet.version` is raised, and what
it gates may be written. A broker that does not support the level does not start any more, so a
level is never lowered. The feature has its own name because clients change their behaviour by
Kafka's (`transaction.version`, `group.version`). Those follow from the level, and are not stored:
`transaction.version` is at its highest as soon as there are transactions.

If a raise and a registration coincide, the later one is refused: the raise compares that `features`
has not been written since its image, and each registration rewrites that key unchanged.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.metadata.packing import Step
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

FEATURE: Final = "logfleet.version"
LEVEL_MIN: Final = 1
"""The level of a store that has none, and of a broker that does not report what it supports."""
GIVING_UP: Final = 2
"""The lowest level at which lost partitions may be given up.

A version of level 1 drops `PartitionValue.given_up` when it writes the partition.
"""
TRANSACTIONS: Final = 3
"""The lowest level at which there are transactions.

A version of level 2 does not end a transaction by its marker: as a follower it would report a wrong
last stable offset once it leads.
"""
TRANSACTION_FEATURE: Final = "transaction.version"
TRANSACTION_VERSION: Final = 2
"""The version of Kafka's transactions that clients are to use (KIP-890, TransactionVersion.TV_2).

Clients of the versions before are served too: a request's version decides.
"""
LEVEL_MAX: Final = 3
"""The highest level that this version supports."""
UPGRADE: Final = 1
UPGRADE_TYPES: Final = frozenset({UPGRADE, 2, 3})
"""Kafka: FeatureUpdate.UpgradeType; 2 and 3 are a safe and an unsafe downgrade."""
NAMED_MAX: Final = 20
"""The most brokers that a refusal names."""


class Update(msgspec.Struct, frozen=True):
    """A requested change of one feature."""

    feature: str
    level: int
    upgrade_type: int = UPGRADE


class Feature(msgspec.Struct, frozen=True):
    """A feature as clients learn it: the versions that are supported, and the one in force."""

    name: str
    low: int
    high: int
    finalized: int


class FeatureLevel(msgspec.Struct, frozen=True):
    """The level as brokers report it.

    finalized: the level in force. possible: the highest that all of them support. objection: why a
    higher one, which some support, is not possible; else "".
    """

    finalized: int
    possible: int
    objection: str = ""


def cannot_join(features: FeaturesValue, level_max: int) -> str:
    """Why a broker that supports up to `level_max` must not join; "" if it may."""
    if level_max >= features.level:
        return ""
    return (
        f"the cluster is at level {features.level} of {FEATURE}, and this broker supports up "
        f"to {level_max}: "
        f"run the version that raised it ({features.by or 'unknown'}) or a later one"
    )


def transactions_allowed(image: ClusterImage) -> bool:
    """Whether brokers serve transactions: every one of them keeps their state in the log."""
    return image.features.level >= TRANSACTIONS


def features(image: ClusterImage, level_max: int) -> Iterator[Feature]:
    """The features of a broker that supports up to `level_max`: our own, and those of Kafka."""
    yield Feature(FEATURE, LEVEL_MIN, level_max, image.features.level)
    if transactions_allowed(image):
        yield Feature(TRANSACTION_FEATURE, 0, TRANSACTION_VERSION, TRANSACTION_VERSION)


def needs(image: ClusterImage, level: int, what: str) -> str:
    """Why `what` is not possible yet; "" if the level is reached."""
    if image.features.level >= level:
        return ""
    return (
        f"{what} needs level {level} of {FEATURE}, the cluster is at {image.features.level}: "
        "raise it by "
        f"`logfleet features upgrade {level}` or `kafka-features upgrade --feature "
        f"{FEATURE}={level}`"
    )


def update_features(
    image: ClusterImage, controller_id: int, updates: Sequence[Update], by: str
) -> tuple[Step, ...] | Refusal:
    """The writes of the updates, none if nothing changes; or a refusal of the first invalid update.

    by: the version of Logfleet that raises the level. Nobody knows what stopped brokers support:
    they must be started or unregistered first. The refusal is INVALID_UPDATE_VERSION, with Kafka's
    text where there is one (FeatureControlManager.updateFeature, QuorumFeatures).
    """
    level = image.features.level
    for update in updates:
        reason = _reason(image, controller_id, update)
        if reason:
            message = (
                f"Invalid update version {update.level} for feature {update.feature}. {reason}"
            )
            return Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)
        if update.feature == FEATURE:
            level = update.level
    if level == image.features.level:
        return ()
    return (FEATURES.change(None, FeaturesValue(level, by), image.features.revision),)


def _reason(image: ClusterImage, controller_id: int, update: Update) -> str:
    if update.upgrade_type not in UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if update.feature == TRANSACTION_FEATURE and transactions_allowed(image):
        return _reason_of_transactions(controller_id, update)
    if update.feature != FEATURE:
        return f"Local controller {controller_id} does not support this feature."
    if not LEVEL_MIN <= update.level <= LEVEL_MAX:
        return f"Local controller {controller_id} only supports versions {LEVEL_MIN}-{LEVEL_MAX}"
    level = image.features.level
    if update.level < level:
        return (
            f"It is at {level}, and is never lowered: versions that do not support {level} may "
            "not read what is written by now."
        )
    if update.level == level:
        return ""
    if update.upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    unable = list(_unable(image, update.level))
    more = f"; and {len(unable) - NAMED_MAX} more" if len(unable) > NAMED_MAX else ""
    return "; ".join(unable[:NAMED_MAX]) + more


def _reason_of_transactions(controller_id: int, update: Update) -> str:
    if not 0 <= update.level <= TRANSACTION_VERSION:
        return f"Local controller {controller_id} only supports versions 0-{TRANSACTION_VERSION}"
    if update.level < TRANSACTION_VERSION:
        return (
            f"It is at {TRANSACTION_VERSION}, and is never lowered: clients of the versions before "
            "are served all the same."
        )
    return ""


def _unable(image: ClusterImage, level: int) -> Iterator[str]:
    for broker_id in sorted({*image.brokers, *image.fences}):
        broker = image.brokers.get(broker_id)
        if broker is None:
            yield (
                f"Broker {broker_id} is not running: start it, or `kafka-cluster unregister --id "
                f"{broker_id}`"
            )
        elif broker.value.level < level:
            yield f"Broker {broker_id} only supports versions {LEVEL_MIN}-{broker.value.level}"
