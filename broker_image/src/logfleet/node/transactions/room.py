"""The room of transactions: their coordinators on this broker, and what asks those of others."""

from dataclasses import dataclass

from logfleet.config.broker import BrokerConfig
from logfleet.node.coordinators.internal_topic import CreateTopic
from logfleet.node.coordinators.subscribing import subscribe
from logfleet.node.disks import Disks
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.replication.room import Replication
from logfleet.node.transactions.transaction_coordinators import TransactionCoordinators
from logfleet.node.transactions.verifier import Verifier
from logfleet.node.workers import Workers
from logfleet.node.world import World
from logfleet.store.loader import MetadataLoader
from logfleet.transactions.decision import TakeProducerId


@dataclass(frozen=True, slots=True)
class Transactions:
    """verifier: asks coordinators about partitions that something is written to."""

    coordinators: TransactionCoordinators
    verifier: Verifier


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
    create_topic: CreateTopic,
    take_producer_id: TakeProducerId,
) -> Transactions:
    """Coordinate what is led from now on; keep ready what is followed."""
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
    verifier = Verifier(
        config,
        coordinators,
        image=lambda: metadata.image,
        spawn=coordinators.runtime.spawn,
    )
    life.closing.callback(verifier.close)
    return Transactions(coordinators, verifier)
