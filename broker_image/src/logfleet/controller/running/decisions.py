"""Records what the controller's writes decided."""

import structlog

from logfleet.controller.terms.decisions import decided
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.store import Txn
from logfleet.telemetry.decisions import Decisions, Kind

log = structlog.get_logger(__name__)


def record_write(
    decisions: Decisions, image: ClusterImage, txn: Txn, cause: str | None = None
) -> None:
    """Record what was decided by a write that was committed; see `decided`."""
    unclean = 0
    for decision in decided(image, txn, cause):
        decisions.record(decision)
        unclean += decision.kind is Kind.UNCLEAN_ELECTION
    if unclean:
        log.warning("partitions_elected_uncleanly", partitions=unclean)
