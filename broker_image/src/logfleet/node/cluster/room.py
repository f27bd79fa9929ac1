"""Makes this broker a member of the fleet, and lets it lead while it is registered."""

from typing import Any

from logfleet.config.broker import BrokerConfig
from logfleet.controller.running.loop import ControllerLoop
from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.node.cluster.failsafe import Failsafe
from logfleet.node.cluster.membership import BrokerMembership, broker_value
from logfleet.node.cluster.registration.registrar import Registration
from logfleet.node.cluster.silent_peers import SilentPeers
from logfleet.node.cluster.stored_metadata import StoredMetadata
from logfleet.node.disks import Disks
from logfleet.node.dispatch import Dispatcher
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.hosting import Hosting
from logfleet.sessions.followers import FollowerFetches
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions


def open_failsafe(
    config: BrokerConfig,
    life: Lifetime,
    *,
    metadata: MetadataLoader,
    hosting: Hosting,
    followers: FollowerFetches,
    decisions: Decisions,
) -> Failsafe:
    """Go on leading, from now on, while the metadata store is silent."""
    listener = config.inter_broker_listener_name
    failsafe = Failsafe(
        hosting.table,
        hosting.leadership,
        hosting.local,
        followers=followers,
        peers=SilentPeers(config.node_id, listener, lambda: metadata.image),
        decisions=decisions,
    )
    life.spawn("failsafe", failsafe.run())
    return failsafe


def open_membership(
    stored: StoredMetadata,
    config: BrokerConfig,
    life: Lifetime,
    *,
    incarnation: str,
    addresses: tuple[Endpoint, ...],
    controller: ControllerLoop,
    disks: Disks,
    hosting: Hosting,
    failsafe: Failsafe,
    dispatcher: Dispatcher[Any],
    decisions: Decisions,
) -> BrokerMembership:
    """Register from now on. The registration ends last, just before the store is closed.

    dispatcher: gets the lease. addresses: of this broker, for clients.
    """

    def registered(registration: Registration) -> None:
        dispatcher.lease = failsafe.registered(registration.lease)
        hosting.local.registered(registration.epoch)

    def lost() -> None:
        hosting.local.lost_registration()
        failsafe.unregistered()
        dispatcher.lease = None

    offline = hosting.table.offline
    value = broker_value(config, disks.log_dirs, incarnation, addresses, offline=offline.by_topic())
    membership = BrokerMembership(
        stored.world,
        stored.loader,
        controller,
        config,
        value=value,
        decisions=decisions,
        on_registered=registered,
        on_lost=lost,
        on_active=disks.settle,
    )
    stored.on_closing.append(membership.unregister)
    offline.on_change.append(lambda: membership.update(offline=offline.by_topic()))
    membership.start(life.spawn)
    return membership
