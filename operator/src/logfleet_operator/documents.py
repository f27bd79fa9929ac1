"""Reads resources, leaving out fields that this operator does not know. PURE.

CRDs may be newer than the operator: they are upgraded first, and all releases of a Kubernetes
cluster share them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from logfleet.resources.cluster import ClusterResource, parse_cluster
from logfleet.resources.document import without_unknown
from logfleet.resources.rebalance import RebalanceResource, parse_rebalance
from logfleet.resources.topic import TopicResource, parse_topic

from logfleet_operator.names import Manifest

SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "Cluster": ClusterResource,
    "Topic": TopicResource,
    "Rebalance": RebalanceResource,
}


def read_cluster(live: Manifest) -> ClusterResource:
    """Raises InvalidResourceError."""
    return parse_cluster(without_unknown(live, ClusterResource)[0])


def read_topic(live: Manifest) -> TopicResource:
    """Raises InvalidResourceError."""
    return parse_topic(without_unknown(live, TopicResource)[0])


def read_rebalance(live: Manifest) -> RebalanceResource:
    """Raises InvalidResourceError."""
    return parse_rebalance(without_unknown(live, RebalanceResource)[0])


def ignored_fields(live: Mapping[str, Any]) -> list[str]:
    """Paths of the fields that the functions above leave out, such as spec.pools[0].color."""
    return without_unknown(live, SHAPES[live["kind"]])[1]
