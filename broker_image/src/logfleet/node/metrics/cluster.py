"""The cluster by the controller's image, and this broker's part as the controller.

Brokers that are not the controller report zeros, as Kafka's do.
"""

from collections.abc import Callable, Iterator

from logfleet.controller.running.loop import ControllerLoop
from logfleet.metadata.image import ClusterImage
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.telemetry import table
from logfleet.telemetry.decisions import Decisions, Kind
from logfleet.telemetry.exposition import Family, Row, single


def cluster(
    image: ClusterImage, controller: ControllerLoop, decisions: Decisions
) -> Iterator[Family]:
    """Metrics of the cluster and its controller. controller, decisions: this broker's."""
    yield single(table.ACTIVE_CONTROLLER, controller.is_controller)
    yield single(table.FAILED_TERMS, controller.failed_terms)
    yield single(table.ELECTIONS, decisions.count(Kind.ELECTION, Kind.UNCLEAN_ELECTION))
    yield single(table.UNCLEAN_ELECTIONS, decisions.count(Kind.UNCLEAN_ELECTION))
    seen = image if controller.is_controller else ClusterImage()
    active = sum(not broker.is_fenced for broker in seen.brokers.values())
    yield single(table.ACTIVE_BROKERS, active)
    yield single(table.FENCED_BROKERS, len(seen.brokers.keys() | seen.fences.keys()) - active)
    draining = sum(broker.is_draining for broker in seen.brokers.values())
    yield single(table.DRAINING_BROKERS, draining)
    yield single(table.TOPICS, seen.topic_count())
    yield Family(table.OFFLINE_PARTITIONS, _offline(seen))


def _offline(image: ClusterImage) -> Iterator[Row]:
    offline = 0
    for topic in image.topics():
        offline += sum(not partition.has_leader for partition in topic.partitions)
        yield None
    yield "", offline


def store(failsafe: Failsafe, suspended: int, refused: int) -> Iterator[Family]:
    """This broker's access to the metadata store.

    suspended: partitions that it does not serve for lack of it. refused: writes that the store
    refused.
    """
    yield single(table.STORE_WRITES_REFUSED, refused)
    yield single(table.STORE_SILENT_SECONDS, failsafe.silent_s)
    yield single(table.PARTITIONS_SUSPENDED, suspended)


def readiness(reason: Callable[[], str | None]) -> Iterator[Family]:
    """Whether clients may be sent to this broker. reason: why not, None if they may."""
    yield single(table.READY, reason() is None)
