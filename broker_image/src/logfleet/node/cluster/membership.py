"""This broker's membership in the fleet: registers it, watches peers, and leaves before a stop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec

from logfleet.config.broker import BrokerConfig
from logfleet.controller.brokers.readiness import not_ready
from logfleet.controller.running.loop import ControllerLoop
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.metadata.kinds.brokers import BrokerValue, Endpoint
from logfleet.node.cluster.own_replicas import OwnReplicas
from logfleet.node.cluster.peer_watch import PeerWatch
from logfleet.node.cluster.registration.registrar import Registrar, Registration
from logfleet.node.world import World
from logfleet.store.loader import MetadataLoader
from logfleet.store.refused_writes import RefusedWrites
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.types import BrokerEpoch

LEAVING_S_MAX: Final = 55.0
"""Kubernetes kills after terminationGracePeriodSeconds; flushing needs the rest of it."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], None]


def broker_value(
    config: BrokerConfig,
    log_dirs: LogDirs,
    incarnation: str,
    addresses: tuple[Endpoint, ...],
    *,
    offline: dict[str, tuple[int, ...]],
) -> BrokerValue:
    """What a broker registers with as it starts, without the time. log_dirs: opened."""
    return BrokerValue(
        incarnation,
        addresses,
        config.broker_rack,
        tuple(log_dir.identity.directory_id for log_dir in log_dirs),
        offline,
        unclean=not log_dirs.lost_nothing,
        level=config.logfleet_feature_level_max,
        previous_epoch=log_dirs.previous_epoch,
    )


class BrokerMembership:
    """Keeps this broker registered, and announces when it leaves.

    value: what this broker registers with, as it started now; `update` changes it. on_registered,
    on_lost: as Registrar calls them. on_active: as Registrar reports it; one call at a time.
    """

    def __init__(
        self,
        world: World,
        follower: MetadataLoader,
        controller: ControllerLoop,
        config: BrokerConfig,
        *,
        value: BrokerValue,
        decisions: Decisions,
        on_registered: Callable[[Registration], None],
        on_lost: Callable[[], None],
        on_active: Callable[[BrokerEpoch], Awaitable[None]],
    ) -> None:
        self._follower = follower
        self._node_id = config.node_id
        self._decisions = decisions
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._on_active = on_active
        self._active: asyncio.Queue[BrokerEpoch] = asyncio.Queue()
        self._own = OwnReplicas(config.node_id)
        self._registrar = Registrar(
            world,
            follower,
            config.node_id,
            msgspec.structs.replace(value, since_ms=world.clock.now_ms()),
            on_registered=self._registered,
            on_lost=self._registration_lost,
            on_active=self._active.put_nowait,
        )
        self._peers = PeerWatch(
            world.store,
            follower,
            controller,
            node_id=config.node_id,
            listener_name=config.inter_broker_listener_name,
            lease=lambda: None if self.registration is None else self.registration.lease,
            decisions=decisions,
        )

    def start(self, spawn: Spawn) -> None:
        spawn("registration", self._registrar.run())
        spawn("peers", self._peers.run())
        spawn("own replicas", self._own.run(self._follower.subscribe()))
        spawn("active", self._settle())

    @property
    def registration(self) -> Registration | None:
        """The present registration, None while there is none."""
        return self._registrar.registration

    @property
    def refused(self) -> RefusedWrites:
        """Updates of the registration that the store refused."""
        return self._registrar.refused

    async def _settle(self) -> None:
        while True:
            await self._on_active(await self._active.get())

    def update(self, **changes: Any) -> None:
        """Change these fields of BrokerValue from now on."""
        self._registrar.update(**changes)

    def not_ready(self) -> str | None:
        """Why this broker is not a full member of the fleet, None if it is."""
        broker = self._own.image.brokers.get(self._node_id)
        return not_ready(broker, self._registrar.epoch, self._own.missing)

    async def leave(self, seconds_max: float = LEAVING_S_MAX) -> None:
        """Let other brokers take over the leaderships; stay registered until `unregister`."""
        cause = await self._registrar.leave(seconds_max)
        if cause:
            self._record(Kind.LEFT, cause)

    async def unregister(self) -> None:
        """Remove the registration: for the others, this broker has stopped."""
        await self._registrar.unregister()

    def _registered(self, registration: Registration) -> None:
        self._on_registered(registration)
        self._record(Kind.REGISTERED, "it holds a lease", epoch=registration.epoch)

    def _registration_lost(self, reason: str) -> None:
        self._on_lost()
        self._record(Kind.REGISTRATION_LOST, reason)

    def _record(self, kind: Kind, cause: str, **facts: object) -> None:
        self._decisions.record(Decision(kind, cause, broker=self._node_id, facts=facts))
