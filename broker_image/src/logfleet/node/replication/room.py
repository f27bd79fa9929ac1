"""Replicates partitions: copies from leaders, and writes the ISRs of what this broker leads."""

from dataclasses import dataclass

from logfleet.config.broker import BrokerConfig
from logfleet.log.recovery.truncater import Truncater
from logfleet.node.disks import Disks
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.replication.isr_writer import IsrWriter
from logfleet.node.replication.replica_fetchers import ReplicaFetchers
from logfleet.node.world import World
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions


@dataclass(frozen=True, slots=True)
class Replication:
    """truncater: offers an event for logs that were cut."""

    truncater: Truncater
    isr_writer: IsrWriter


def open_replication(
    world: World,
    config: BrokerConfig,
    life: Lifetime,
    *,
    metadata: MetadataLoader,
    disks: Disks,
    hosting: Hosting,
    throttle: ReplicationThrottle,
    decisions: Decisions,
) -> Replication:
    """Copy what is followed, and write ISRs, from now on."""
    truncater = Truncater(disks.log_dirs, disks.flusher, disks.checkpointer, disks.failed)
    ReplicaFetchers(
        config,
        hosting.following,
        truncater,
        life.spawn,
        metadata=metadata,
        replicated=hosting.table.replicated,
        throttle=throttle,
        decisions=decisions,
        storage_failed=disks.storage_failed,
    )
    isr_writer = IsrWriter(world.store, metadata, hosting.table, hosting.leadership, decisions)
    life.spawn("isr", isr_writer.run())
    return Replication(truncater, isr_writer)
