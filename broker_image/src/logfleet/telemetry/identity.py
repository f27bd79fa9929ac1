"""Who answers at an admin port: on loopback, a client on another machine finds another broker."""

from typing import Final

IDENTITY_HEADER: Final = "Logfleet-Broker"
"""A header of every answer: CLUSTER-ID/BROKER-ID."""


def identity(cluster_id: str, broker_id: int) -> str:
    """The header's value. cluster_id: Kafka's text form, empty before the broker has joined one."""
    return f"{cluster_id}/{broker_id}"
