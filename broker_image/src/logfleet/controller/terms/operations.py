"""What the controller is asked to do: an operation decides on an image, and the term writes it."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.store import Txn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

T = TypeVar("T")

OUTCOME_UNKNOWN: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "The controller stopped before the metadata store had answered; the change may have been made.",
)


class NotControllerError(Exception):
    """This broker is not the controller, or lost that role before the operation was done.

    Kafka: NOT_CONTROLLER.
    """


class TermDecision(msgspec.Struct, Generic[T], frozen=True):
    """Writes to commit, in this order or in any, and the answer after that.

    cause: why leaders change by it, if that is not obvious.
    """

    txns: tuple[Txn, ...]
    answer: T
    cause: str | None = None
    in_any_order: bool = False


Operation = Callable[[ClusterImage, int, BrokerLayers], TermDecision[T] | Refusal]
"""Decides on an image, for a controller epoch, with the cluster's configuration.

It is decided again if the image was outdated.
"""
