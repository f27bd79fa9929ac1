"""The room of transactions: their coordinators on this broker, and what deals with other brokers.

Those of other brokers are asked about partitions (`verifier`), and the leaders of partitions get
the markers of this one's (`marker_sender`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from logfleet.config.broker import BrokerConfig
from logfleet.node.coordinators.internal_topic import CreateTopic
from logfleet.node.coordinators.subscribing import subscribe
from logfleet.node.disks import Disks
from logfleet.node.dispatch import Tenure
from logfleet.node.groups.group_coordinators import GroupCoordinators
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.replication.room import Replication
from logfleet.node.transactions.enlisting import Enlisting
from logfleet.node.transactions.marker_appends import MarkerAppends
from logfleet.node.transactions.marker_sender import MarkerSender
from logfleet.node.transactions.transaction_coordinators import TransactionCoordinators
from logfleet.node.transactions.transaction_shard import MarkerEvents
from logfleet.node.transactions.verifier import Verifier
from logfleet.node.workers import Workers
from logfleet.node.world import World
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions
from logfleet.transactions.decision import TakeProducerId


@dataclass(frozen=True, slots=True)
class Transactions:
    """enlisting: asks coordinators about partitions that something is written to.

    marker_appends: writes markers to partitions that are led here. markers: sends those of this
    broker's coordinators.
    """

    coordinators: TransactionCoordinators
    enlisting: Enlisting
    marker_appends: MarkerAppends
    markers: MarkerSender


def open_transactions(
    world: World,
    config: BrokerConfig,
    life: Lifetime,
    *,
    metadata: MetadataLoader,
    workers: Workers,
    disks: Disks,
    hosting: Hosting,
    replication: Replication,
    groups: GroupCoordinators,
    lease: Callable[[], Tenure | None],
    decisions: Decisions,
    create_topic: CreateTopic,
    take_producer_id: TakeProducerId,
) -> Transactions:
    """Coordinate what is led from now on; keep ready what is followed.

    lease: by which this broker leads; None while it leads nothing.
    """
    coordinators = TransactionCoordinators(
        config,
        clock=world.clock,
        image=lambda: metadata.image,
        create_topic=create_topic,
        take_producer_id=take_producer_id,
        run_in_thread=workers.run_in_thread,
        storage_failed=disks.storage_failed,
        is_hosted=lambda *key: hosting.table.replica(*key) is not None,
    )
    subscribe(coordinators.runtime, hosting, replication)
    life.spawn("transactions", coordinators.run())
    enlisting = _open_enlisting(world, config, life, metadata, coordinators)
    appends = MarkerAppends(
        hosting.table,
        groups,
        clock=world.clock,
        timeout_s=config.request_timeout_ms / 1000,
        storage_failed=disks.storage_failed,
    )
    markers = MarkerSender(
        config,
        appends,
        clock=world.clock,
        image=lambda: metadata.image,
        lease=lease,
        decisions=decisions,
        spawn=coordinators.runtime.spawn,
        connect=world.connect,
    )
    _send_markers(coordinators.events, markers)
    life.spawn("markers", markers.run(metadata.subscribe()))
    return Transactions(coordinators, enlisting, appends, markers)


def _open_enlisting(
    world: World,
    config: BrokerConfig,
    life: Lifetime,
    metadata: MetadataLoader,
    coordinators: TransactionCoordinators,
) -> Enlisting:
    verifier = Verifier(
        config,
        coordinators,
        image=lambda: metadata.image,
        spawn=coordinators.runtime.spawn,
        connect=world.connect,
    )
    life.spawn("verifier", verifier.run(metadata.subscribe()))
    return Enlisting(verifier, world.clock.monotonic_ms)


def _send_markers(events: MarkerEvents, markers: MarkerSender) -> None:
    """Send what comes due at the coordinators, for as long as they lead their partitions."""
    events.on_due.append(lambda shard, due: markers.due(shard, shard.partition.leader_epoch, due))
    events.on_closed.append(markers.drop)
