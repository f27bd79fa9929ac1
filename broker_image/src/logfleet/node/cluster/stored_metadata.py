"""Opens the metadata store, and joins the cluster whose metadata it holds."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from logfleet.client.connection import Connection
from logfleet.config.broker import BrokerConfig
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.io.dead_mans_timer import DeadMansTimer
from logfleet.log.directories.log_dirs import OnDisk
from logfleet.node.cluster.joining import join_cluster
from logfleet.node.cluster.own_data import refuse_data_without_identity, refuse_data_without_store
from logfleet.node.lifetime import Lifetime
from logfleet.node.world import World
from logfleet.store.loader import MetadataLoader
from logfleet.store.opening import OpenStore


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """loader: follows the store once its `run` runs. cluster_id: in Kafka's text form.

    on_closing: each is called before the store closes, when all rooms after it have closed.
    """

    world: World
    loader: MetadataLoader
    cluster_id: str
    on_closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


async def open_metadata(
    config: BrokerConfig,
    life: Lifetime,
    on_disk: OnDisk,
    timer: DeadMansTimer,
    open_store: OpenStore,
) -> StoredMetadata:
    """Open the store, and join its cluster.

    on_disk: what the log directories hold. Raises StoreError, LogDirRefused.
    """
    refuse_data_without_store(config, on_disk)
    store = await open_store(config, timer)
    life.closing.push_async_callback(store.close)
    on_closing: list[Callable[[], Awaitable[None]]] = []

    async def closing() -> None:
        for callback in on_closing:
            await callback()

    life.closing.push_async_callback(closing)
    await refuse_data_without_identity(store, config.node_id, on_disk)
    level = config.logfleet_feature_level_max
    cluster_id = await join_cluster(
        store, on_disk.cluster_id, unreadable=on_disk.unreadable, level=level
    )
    world = World(SYSTEM_CLOCK, store, Connection.connect)
    return StoredMetadata(world, MetadataLoader(store, world.clock), cluster_id, on_closing)
