"""Identifies the broker that answers at an admin port.

On loopback, a client on another machine finds another broker.
"""

from typing import Final

IDENTITY_HEADER: Final = "Logfleet-Broker"
"""A header of every response: CLUSTER-ID/BROKER-ID."""


def identity(cluster_id: str, broker_id: int) -> str:
    """The header's value.

    cluster_id: Kafka's text form, empty until the broker has joined a cluster.
    """
    return f"{cluster_id}/{broker_id}"
