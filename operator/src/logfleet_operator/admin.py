"""What the operator asks of brokers: to describe topics and to change them.

AdminRefused        a broker refused the request: Kafka's error name and its message
AdminUnavailable    no broker answered, or none with what was asked: the state is unknown
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import ObservedTopic, PartitionHealth, TopicAction


class AdminRefused(Exception):
    """code: Kafka's name of the error, such as INVALID_CONFIG."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


class AdminUnavailable(Exception):
    """No broker answered the request in time."""


class Admin(Protocol):
    """A connection to the brokers of one Cluster."""

    async def describe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        """The named topics that exist. Raises AdminUnavailable."""
        ...

    async def partition_health(self) -> PartitionHealth:
        """The health of all topics' partitions. Raises AdminUnavailable."""
        ...

    async def perform(self, actions: Sequence[TopicAction]) -> None:
        """Perform all actions on one topic, in order; none if the brokers refuse one of them.

        Raises AdminRefused, AdminUnavailable. Deleting a topic that does not exist is no error.
        """
        ...

    async def configure(self, desired: ClusterResource) -> str:
        """Make the fleet-wide config of the brokers equal to `desired.config`.

        Sets keys that differ and removes all others. Returns the changed keys, "" if there are
        none. Raises AdminRefused, AdminUnavailable.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class AdminFactory(Protocol):
    """Opens connections; each is used for one reconcile."""

    async def open(self, bootstrap: str) -> Admin:
        """bootstrap: HOST:PORT. Raises AdminUnavailable."""
        ...
