"""Hosts the partitions of which this broker has a replica: as leader, as follower, on its disks."""

from dataclasses import dataclass

from logfleet.config.broker import BrokerConfig
from logfleet.node.cluster.directory_record import DirectoryRecord
from logfleet.node.disks import Disks
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.deletions import Deletions
from logfleet.node.partitions.flush_rules import FlushRules
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.leadership import Leadership
from logfleet.node.partitions.local_partitions import LocalPartitions
from logfleet.node.partitions.log_configs import LogConfigs
from logfleet.node.partitions.log_moves import LogMoves
from logfleet.node.partitions.missing_directories import MissingDirectories
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica_logs import ReplicaLogs
from logfleet.node.partitions.strays import set_strays_aside
from logfleet.node.workers import Workers
from logfleet.node.world import World
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.store.loader import MetadataLoader


@dataclass(frozen=True, slots=True)
class Hosting:
    """table: the replicas. local: hosts what the image wants, once its `run` runs.

    leadership, following: offer events for the partitions that change their role. log_moves: do
    nothing before maintenance has begun.
    """

    table: PartitionTable
    leadership: Leadership
    following: Following
    local: LocalPartitions
    log_moves: LogMoves


def open_hosting(
    world: World,
    config: BrokerConfig,
    life: Lifetime,
    *,
    metadata: MetadataLoader,
    configs: LogConfigs,
    disks: Disks,
    workers: Workers,
    throttle: ReplicationThrottle,
) -> Hosting:
    """Host nothing yet. The logs of `disks` are loaded, and those that are strays are set aside."""
    node_id, log_dirs, flusher = config.node_id, disks.log_dirs, workers.flusher
    table = PartitionTable(lambda: metadata.image)
    set_strays_aside(log_dirs, metadata.image, node_id)
    for path in log_dirs.failed:
        disks.disk_space.drop(path)
    rules = FlushRules(flusher, workers.timers, disks.failed)
    life.closing.push_async_callback(rules.close)
    logs = ReplicaLogs(node_id, log_dirs, table, flusher, disks.checkpointer)
    record = DirectoryRecord(world, node_id, log_dirs.found_at_start())
    missing = MissingDirectories(node_id, record, logs, table.offline)
    missing.take_offline(metadata.image)
    leadership = Leadership(node_id, table, flusher, rules, config.replica_lag_time_max_ms)
    following = Following(node_id, table)
    local = LocalPartitions(
        metadata,
        table,
        configs,
        logs=logs,
        leadership=leadership,
        following=following,
        deletions=Deletions(node_id, world.store, logs),
        missing=missing,
        on_disk_failure=disks.failed,
    )
    disks.on_directory_failed.append(local.take_offline)
    moves = LogMoves(
        table,
        log_dirs,
        flusher,
        disks.checkpointer,
        throttle=throttle,
        disk_space=disks.disk_space,
        on_disk_failure=disks.failed,
    )
    return Hosting(table, leadership, following, local, moves)
