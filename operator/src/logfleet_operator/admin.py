"""What the operator asks of brokers: topics, as they are and as they should be.

AdminRefused        a broker understood and said no: Kafka's error name and its sentence
AdminUnavailable    no broker answered, or none what was asked; nothing is known about it
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import ObservedTopic, Shortages, TopicAction


class AdminRefused(Exception):
    """code: Kafka's name of the error, such as INVALID_CONFIG."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


class AdminUnavailable(Exception):
    """No broker answered in time what was asked."""


class Admin(Protocol):
    """A connection to the brokers of one Cluster."""

    async def describe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        """Those of the topics that exist. Raises AdminUnavailable."""
        ...

    async def shortages(self) -> Shortages:
        """What partitions lack, of all topics. Raises AdminUnavailable."""
        ...

    async def perform(self, actions: Sequence[TopicAction]) -> None:
        """Do all that one topic needs, in order; nothing if the brokers refuse a part of it.

        Raises AdminRefused, AdminUnavailable; deleting what is not there is no error.
        """
        ...

    async def configure(self, desired: ClusterResource) -> str:
        """Set what of `desired.config` the brokers do not have, for all of them, and remove what else is set so.

        Returns what was changed; "" for nothing. Raises AdminRefused, AdminUnavailable.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


class AdminFactory(Protocol):
    """Opens connections; an open one is used for one reconcile."""

    async def open(self, bootstrap: str) -> Admin:
        """bootstrap: HOST:PORT. Raises AdminUnavailable."""
        ...
