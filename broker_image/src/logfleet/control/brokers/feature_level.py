"""The feature level of a fleet: what its brokers may write that a version before could not read (KIP-584, KIP-1022).

An upgrade has two phases. First every broker is replaced by one of a later version, and they go on writing what the version before reads: the way back is open. Then the *level*
of the one feature `logfleet.version` is raised, once all brokers can do it, and what it gates may be written; a broker that cannot do it does not start any more. So a level is never lowered. The feature
has a name of its own, since clients change their ways by Kafka's (`transaction.version`, `group.version`).

A raise and a registration at the same moment: the raise compares that nobody has written `features` since its image, and each registration writes that key anew, as it found it. Whoever comes second is refused.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from logfleet.control.store_writes import Refusal
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import FeaturesValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Put, modified_at
from logfleet.wire.errors import ErrorCode

FEATURE: Final = "logfleet.version"
LEVEL_MIN: Final = 1
"""Of a store that does not tell its level, and of a broker that does not tell what it can do."""
GIVING_UP: Final = 2
"""Since this level lost partitions may be given up: a version of level 1 drops `PartitionValue.given_up` when it writes the partition."""
LEVEL_MAX: Final = 2
"""The highest that this version can do."""
UPGRADE: Final = 1
UPGRADE_TYPES: Final = frozenset({UPGRADE, 2, 3})
"""Kafka: FeatureUpdate.UpgradeType; 2 and 3 are a safe and an unsafe downgrade."""
TOLD_MAX: Final = 20
"""Brokers that a refusal names."""


class Update(msgspec.Struct, frozen=True):
    """What is asked for of one feature."""

    feature: str
    level: int
    upgrade_type: int = UPGRADE


class FeatureLevel(msgspec.Struct, frozen=True):
    """As brokers tell it. finalized: the level that holds. possible: the highest that all of them can do. objection: why not a higher one that some can; "" if there is none."""

    finalized: int
    possible: int
    objection: str = ""


def cannot_join(features: FeaturesValue, level_max: int) -> str:
    """Why a broker that can do `level_max` must not take part; "" if it may."""
    if level_max >= features.level:
        return ""
    return (
        f"the cluster is at level {features.level} of {FEATURE}, and this broker can do up to {level_max}: "
        f"run the version that raised it ({features.by or 'not told'}) or a later one"
    )


def needs(image: ClusterImage, level: int, what: str) -> str:
    """Why `what` is not done yet; "" if the level is reached."""
    if image.features.level >= level:
        return ""
    return (
        f"{what} needs level {level} of {FEATURE}, the cluster is at {image.features.level}: raise it by "
        f"`logfleet features upgrade {level}` or `kafka-features upgrade --feature {FEATURE}={level}`"
    )


def update_features(
    image: ClusterImage, controller_id: int, updates: Sequence[Update], by: str
) -> tuple[Step, ...] | Refusal:
    """What has to be written, nothing if it is so already; or why nothing is, of the first feature that cannot be as asked for.

    by: the version of Logfleet that asks. Of brokers that do not run it is not known what they can do; they have to be started or unregistered first.
    Refused with INVALID_UPDATE_VERSION, in Kafka's words where it has some (FeatureControlManager.updateFeature, QuorumFeatures).
    """
    level = image.features.level
    for update in updates:
        reason = _reason(image, controller_id, update)
        if reason:
            message = (
                f"Invalid update version {update.level} for feature {update.feature}. {reason}"
            )
            return Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)
        level = update.level
    if level == image.features.level:
        return ()
    value = keys.encode(FeaturesValue(level, by))
    unchanged = modified_at(keys.FEATURES, image.features.revision)
    return (Step(Put(keys.FEATURES, value), (unchanged,)),)


def _reason(image: ClusterImage, controller_id: int, update: Update) -> str:
    if update.upgrade_type not in UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if update.feature != FEATURE:
        return f"Local controller {controller_id} does not support this feature."
    if not LEVEL_MIN <= update.level <= LEVEL_MAX:
        return f"Local controller {controller_id} only supports versions {LEVEL_MIN}-{LEVEL_MAX}"
    level = image.features.level
    if update.level < level:
        return f"It is at {level}, and is never lowered: versions that cannot do {level} may not read what is written by now."
    if update.level == level:
        return ""
    if update.upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    unable = list(_unable(image, update.level))
    more = f"; and {len(unable) - TOLD_MAX} more" if len(unable) > TOLD_MAX else ""
    return "; ".join(unable[:TOLD_MAX]) + more


def _unable(image: ClusterImage, level: int) -> Iterator[str]:
    for broker_id in sorted({*image.brokers, *image.fences}):
        broker = image.brokers.get(broker_id)
        if broker is None:
            yield f"Broker {broker_id} is not running: start it, or `kafka-cluster unregister --id {broker_id}`"
        elif broker.value.level < level:
            yield f"Broker {broker_id} only supports versions {LEVEL_MIN}-{broker.value.level}"
