"""What the checker sees of a broker, besides the store."""

from typing import Protocol

from broker_image.tests.sim.kernel import Host
from broker_image.tests.sim.replica_log import ReplicaLog


class DiskOf(Protocol):
    """epochs: broker epochs of the registrations that used it."""

    logs: dict[int, ReplicaLog]
    epochs: set[int]


class Watched(Protocol):
    """A broker, as the checker looks into it."""

    id: int
    host: Host
    epoch: int | None

    @property
    def disk(self) -> DiskOf: ...
