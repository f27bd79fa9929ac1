"""The cluster as the controller sees it; brokers that are not the controller tell zeros, as Kafka's do; and how it fares as one."""

from collections.abc import Callable, Iterator

from logfleet.metadata.image import ClusterImage
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, Row, single


def cluster(
    image: ClusterImage, *, is_controller: bool, failed_terms: int, unclean_elections: int
) -> Iterator[Family]:
    """is_controller: whether this broker is it. failed_terms, unclean_elections: see ControllerLoop."""
    yield single(table.ACTIVE_CONTROLLER, is_controller)
    yield single(table.FAILED_TERMS, failed_terms)
    yield single(table.UNCLEAN_ELECTIONS, unclean_elections)
    active = sum(not broker.is_fenced for broker in image.brokers.values())
    yield single(table.ACTIVE_BROKERS, active if is_controller else 0)
    yield single(table.TOPICS, image.topic_count() if is_controller else 0)
    yield Family(table.OFFLINE_PARTITIONS, _offline(image if is_controller else ClusterImage()))


def _offline(image: ClusterImage) -> Iterator[Row]:
    offline = 0
    for topic in image.topics():
        offline += sum(not partition.has_leader for partition in topic.partitions)
        yield None
    yield "", offline


def readiness(reason: Callable[[], str | None]) -> Iterator[Family]:
    """reason: why clients may not be sent to this broker, None if they may."""
    yield single(table.READY, reason() is None)
