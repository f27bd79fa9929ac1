"""The parts of the broker that a fetcher needs."""

from typing import Protocol

from logfleet.config.broker import BrokerConfig
from logfleet.log.recovery.truncater import Truncater
from logfleet.metadata.image import Broker
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.node.partitions.traffic import Traffic
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.telemetry.decisions import Decisions
from logfleet.types import BrokerEpoch


class FollowerHost(Protocol):
    """The parts of the broker that a fetcher uses.

    broker_epoch: of this broker's registration. replicated: counts the bytes that are copied.
    """

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def broker_epoch(self) -> BrokerEpoch: ...
    @property
    def truncater(self) -> Truncater: ...
    @property
    def decisions(self) -> Decisions: ...
    @property
    def replicated(self) -> Traffic: ...
    @property
    def throttle(self) -> ReplicationThrottle: ...

    def broker(self, broker_id: int) -> Broker | None:
        """The broker as it is registered in the newest image."""

    def storage_failed(self, partition: FollowerPartition, error: OSError) -> None:
        """Report that a log could not be written."""
