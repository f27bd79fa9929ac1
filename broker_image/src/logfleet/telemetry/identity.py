"""Who answers at an admin port. Brokers of a laptop have theirs on loopback, where another machine's client finds another broker."""

from typing import Final

IDENTITY_HEADER: Final = "Logfleet-Broker"
"""A header of every answer: CLUSTER-ID/BROKER-ID."""


def identity(cluster_id: str, broker_id: int) -> str:
    """The header's value. cluster_id: in Kafka's text form, empty before the broker has joined one."""
    return f"{cluster_id}/{broker_id}"
