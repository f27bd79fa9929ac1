"""Coordinates groups, for the partitions of the offsets topic that this broker leads."""

from logfleet.config.broker import BrokerConfig
from logfleet.node.coordinators.internal_topic import CreateTopic
from logfleet.node.coordinators.subscribing import subscribe
from logfleet.node.disks import Disks
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.replication.room import Replication
from logfleet.node.workers import Workers
from logfleet.node.world import World
from logfleet.store.loader import MetadataLoader


def open_coordinators(
    world: World,
    config: BrokerConfig,
    life: Lifetime,
    *,
    metadata: MetadataLoader,
    workers: Workers,
    disks: Disks,
    hosting: Hosting,
    replication: Replication,
    create_topic: CreateTopic,
) -> GroupCoordinators:
    """Coordinate what is led from now on; keep ready what is followed."""
    coordinators = GroupCoordinators(
        config,
        clock=world.clock,
        create_topic=create_topic,
        run_in_thread=workers.run_in_thread,
        storage_failed=disks.storage_failed,
        is_hosted=lambda *key: hosting.table.replica(*key) is not None,
    )
    subscribe(coordinators.runtime, hosting, replication)
    life.spawn("coordinators", coordinators.run(metadata.subscribe()))
    return coordinators
