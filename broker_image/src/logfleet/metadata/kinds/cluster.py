"""The cluster itself: its id, its feature level, its controller, and the controller's receipts."""

from typing import Final

import msgspec

from logfleet.metadata.image_draft import Part
from logfleet.metadata.kind import (
    LEFT_OUT,
    NUMBER,
    ONLY,
    PLAIN,
    RAW,
    Kind,
    Single,
    SnapshotRule,
    json_of,
    pair,
)
from logfleet.metadata.store import KeyValue


def _cluster_id(value: str, _item: KeyValue) -> str | None:
    return value


CLUSTER_ID: Final = Kind(
    "cluster/id",
    ONLY,
    PLAIN,
    image=Single(Part[str | None]("cluster_id", None), _cluster_id),
    snapshot=SnapshotRule(is_last=True),
)
"""Written by the first broker, once.

Brokers refuse to start without it, so it is restored last: none starts on half a restore.
"""


class FeaturesValue(msgspec.Struct, frozen=True):
    """The finalized level of the feature `logfleet.version`.

    `logfleet.controller.brokers.feature_level`.

    by: the version of Logfleet that wrote it.
    """

    level: int = 1
    by: str = ""


class Features(msgspec.Struct, frozen=True):
    """The finalized level of `logfleet.version`.

    revision: of the last write, 0 if there was none.
    """

    level: int = 1
    revision: int = 0


def _features(value: FeaturesValue, item: KeyValue) -> Features:
    return Features(value.level, item.mod_revision)


FEATURES: Final = Kind(
    "features",
    ONLY,
    json_of(FeaturesValue),
    image=Single(Part("features", Features()), _features),
)
"""Without it the level is 1. Written by the first broker of a cluster, and by the controller to
raise the level. Each broker that registers rewrites the value that it found.
"""


class ControllerValue(msgspec.Struct, frozen=True):
    """The controller: a broker's id, and its incarnation (one per process start)."""

    broker: int
    incarnation: str


class Controller(msgspec.Struct, frozen=True):
    """epoch: create revision of its key. Every write of the controller compares it."""

    broker: int
    incarnation: str
    epoch: int


def _controller(value: ControllerValue, item: KeyValue) -> Controller | None:
    return Controller(value.broker, value.incarnation, item.create_revision)


CONTROLLER: Final[Kind[None, ControllerValue]] = Kind(
    "ctl",
    ONLY,
    json_of(ControllerValue),
    image=Single(Part[Controller | None]("controller", None), _controller),
    notifies="controller",
    snapshot=LEFT_OUT,
)
"""Written by the winner of the election, on its lease. Its create revision is the controller epoch.
"""

RECEIPT: Final[Kind[tuple[int, int], bytes]] = Kind(
    "receipt/ID/SLOT", pair(NUMBER, NUMBER), RAW, snapshot=LEFT_OUT
)
"""The controller epoch and a number, written by broker ID while it controls, with each of its
transactions (`logfleet.metadata.receipts`). Not part of an image. Not below `ctl/`, which earlier
versions read by prefix.
"""


def receipts_of(broker_id: int) -> str:
    """Prefix of all receipts of a broker."""
    return f"{RECEIPT.prefix}{broker_id}/"
