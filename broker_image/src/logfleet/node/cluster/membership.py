"""This broker's membership in the fleet: registers it, watches peers, and leaves before a stop.

It leaves as Kafka does in a controlled shutdown: it announces it
(`logfleet.controller.brokers.leaving`), goes on serving while the controller moves its leaderships
elsewhere, and stops when none is left, or after LEAVING_S_MAX. If every broker is leaving, there is
none to hand over to, and all stop at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec
import structlog

from logfleet.config.broker import BrokerConfig
from logfleet.controller.brokers.leaving import may_exit
from logfleet.controller.brokers.readiness import not_ready
from logfleet.controller.running.loop import ControllerLoop
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import BrokerValue
from logfleet.metadata.store import MetadataStore
from logfleet.node.cluster.own_replicas import OwnReplicas
from logfleet.node.cluster.peer_watch import PeerWatch
from logfleet.node.cluster.registration import Registrar, Registration
from logfleet.store.loader import MetadataLoader
from logfleet.store.refused_writes import RefusedWrites
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.types import BrokerEpoch

log = structlog.get_logger(__name__)

LEAVING_S_MAX: Final = 55.0
"""Kubernetes kills after terminationGracePeriodSeconds; flushing needs the rest of it."""

Spawn = Callable[[str, Coroutine[Any, Any, None]], None]


class BrokerMembership:
    """Keeps this broker registered, and announces when it leaves.

    value: what this broker registers with; `update` replaces it. on_registered, on_lost: as
    Registrar calls them. on_active: called with the broker epoch when the controller has made a
    registration of this process active. By then no partition has the broker in its ISR, or as an
    eligible leader, for records that it may lack.
    """

    def __init__(
        self,
        store: MetadataStore,
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
        self._value = value
        self._decisions = decisions
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._on_active = on_active
        self._changed = asyncio.Event()
        # broker epochs of this process since the last one that was active
        self._epochs: set[BrokerEpoch] = set()
        self._own = OwnReplicas(config.node_id)
        self._broker_epoch = BrokerEpoch(0)
        self._registrar = Registrar(
            store,
            follower,
            config.node_id,
            value,
            on_registered=self._registered,
            on_lost=self._registration_lost,
        )
        self._peers = PeerWatch(
            store,
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
        spawn("active", self._follow_active())

    @property
    def registration(self) -> Registration | None:
        """The present registration, None while there is none."""
        return self._registrar.registration

    @property
    def refused(self) -> RefusedWrites:
        """Updates of the registration that the store refused."""
        return self._registrar.refused

    async def _follow_active(self) -> None:
        """Call on_active whenever a registration of this process becomes active.

        The controller may be away for long, and registrations may end early. `fence/ID` names a
        broker epoch only after the controller has made that registration active.
        """
        subscription = self._follower.subscribe(self._changed)
        while True:
            image, _ = await subscription.next()
            fence = image.fences.get(self._node_id)
            if fence is not None and fence.broker_epoch in self._epochs:
                epoch = fence.broker_epoch
                self._epochs = {each for each in self._epochs if each > epoch}
                self.update(unclean=False, previous_epoch=epoch)
                await self._on_active(epoch)

    def update(self, **changes: Any) -> None:
        """Change these fields of BrokerValue from now on."""
        self._value = msgspec.structs.replace(self._value, **changes)
        self._registrar.update(self._value)

    def not_ready(self) -> str | None:
        """Why this broker is not a full member of the fleet, None if it is."""
        broker = self._own.image.brokers.get(self._node_id)
        return not_ready(broker, self._broker_epoch, self._own.missing)

    async def leave(self, seconds_max: float = LEAVING_S_MAX) -> None:
        """Let other brokers take over the leaderships; stay registered until `unregister`."""
        if self.registration is None or self._is_last(self._follower.image):
            return
        self.update(leaving=True)
        log.info("broker_leaving", broker=self._node_id)
        try:
            async with asyncio.timeout(seconds_max):
                await self._follower.until(
                    lambda image: may_exit(image, self._node_id) or self._is_last(image)
                )
        except TimeoutError:
            cause = f"others did not take over its partitions within {seconds_max:.0f} s"
        else:
            cause = "it has nothing more to hand over"
        self._record(Kind.LEFT, cause)
        log.info("broker_left", broker=self._node_id, reason=cause)

    def _is_last(self, image: ClusterImage) -> bool:
        """Whether no broker stays: all that are there are leaving."""
        return all(
            broker.id == self._node_id or broker.value.leaving or broker.is_fenced
            for broker in image.brokers.values()
        )

    async def unregister(self) -> None:
        """Remove the registration: for the others, this broker has stopped."""
        await self._registrar.leave()

    def _registered(self, registration: Registration) -> None:
        self._broker_epoch = registration.epoch
        self._epochs.add(registration.epoch)
        self._changed.set()
        self._on_registered(registration)
        cause = "it holds a lease"
        self._record(Kind.REGISTERED, cause, epoch=registration.epoch)

    def _registration_lost(self, reason: str) -> None:
        self._on_lost()
        self._record(Kind.REGISTRATION_LOST, reason)

    def _record(self, kind: Kind, cause: str, **facts: object) -> None:
        self._decisions.record(Decision(kind, cause, broker=self._node_id, facts=facts))
