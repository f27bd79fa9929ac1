"""Records that were deleted before they were read: an error, or a warning and a count."""

import logging
from collections.abc import Sequence

from logfleet_spark.offsets import Loss, data_loss

log = logging.getLogger(__name__)


class Losses:
    """accepted: whether the option failOnDataLoss is false.

    count: offsets that were skipped, without those of partitions that no longer exist.
    """

    def __init__(self, *, accepted: bool) -> None:
        self.accepted = accepted
        self.count = 0
        self._standing: list[Loss] = []

    def take(self, lost: Sequence[Loss]) -> None:
        """Count and log the losses. Raises DataLossError unless losses are accepted."""
        if not lost:
            return
        if not self.accepted:
            raise data_loss([loss.text for loss in lost])
        self.count += sum(loss.offsets for loss in lost)
        log.warning(
            "records were deleted before they were read, which failOnDataLoss=false accepts: %s; offsets lost: %d",
            ", ".join(loss.text for loss in lost),
            self.count,
        )

    def take_standing(self, lost: Sequence[Loss]) -> None:
        """As `take`, for losses that every request finds again: each change is reported once."""
        if list(lost) != self._standing or not self.accepted:
            self._standing = list(lost)
            self.take(lost)
