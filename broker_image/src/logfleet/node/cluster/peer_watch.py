"""Notices within moments that the process of another broker has ended; a lease takes seconds.

Each broker keeps an idle connection to some others (`controller.brokers.suspects`). The kernel
closes it when the process ends, however it ends. A broker that is then refused a new connection
reports the peer in the metadata store, and deletes the controller's key if the peer was the
controller: a mistake does no harm, as each write of a controller compares its key. The controller
probes the reported brokers, and fences those whose probe fails too. A machine that is cut off
refuses nothing: there the lease decides.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Final

import structlog

from logfleet.controller.brokers.suspects import fence_suspect, to_be_probed, watched_by
from logfleet.controller.brokers.watched_peer import Act, Event, WatchedPeer
from logfleet.controller.running.loop import ControllerLoop
from logfleet.controller.terms.operations import NotControllerError, TermDecision
from logfleet.io.host_names import HOST_NAMES
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, SUSPECT, Endpoint, SuspectValue
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.store import (
    Lease,
    LeaseNotFound,
    MetadataStore,
    StoreRefused,
    StoreUnavailable,
    Txn,
    UnknownOutcome,
    created_at,
)
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decision, Decisions, Kind
from logfleet.types import BrokerEpoch

log = structlog.get_logger(__name__)

CONNECT_S_MAX: Final = 1.0
PAUSE_S: Final = 0.05
"""Pause before a peer is tried again that refused, or closed at once."""
PROBE_AGAIN_S: Final = 0.1
"""Pause if the probe of a reported broker succeeded, or this broker is becoming the controller."""
_OWN_TROUBLE: Final = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        socket.EAI_AGAIN,
        socket.EAI_FAIL,
    }
)
"""No peer refused: this broker lacks a descriptor, a network or a name server.

While a name server is away, all brokers look the same, and none has ended.
"""

Registration = tuple[int, BrokerEpoch]
"""Broker id and broker epoch."""


class PeerWatch:
    """Watches the processes of some other brokers.

    lease: of this broker's registration, which holds its reports; None while it has none.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        controller: ControllerLoop,
        *,
        node_id: int,
        listener_name: str,
        lease: Callable[[], Lease | None],
        decisions: Decisions,
    ) -> None:
        self._store = store
        self._follower = follower
        self._controller = controller
        self._node_id = node_id
        self._listener_name = listener_name
        self._lease = lease
        self._decisions = decisions

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fence_suspects())
            subscription = self._follower.subscribe()
            watching: dict[Registration, asyncio.Task[None]] = {}
            while True:
                image, _ = await subscription.next()
                wanted = set(watched_by(image, self._node_id).items())
                for former in watching.keys() - wanted:
                    watching.pop(former).cancel()
                for peer in wanted - watching.keys():
                    watching[peer] = tasks.create_task(self._watch(peer))

    def _address(self, broker_id: int) -> Endpoint | None:
        broker = self._follower.image.brokers.get(broker_id)
        return None if broker is None else broker.listener(self._listener_name)

    async def _watch(self, peer: Registration) -> None:
        """Stay connected to a registered broker, and report what becomes of it."""
        watched = WatchedPeer()
        while True:
            address = self._address(peer[0])
            if address is None:
                return
            try:
                reader, writer = await _connect(address)
            except TimeoutError:
                log.debug("peer_not_reached", broker=peer[0])
            except OSError as error:
                for act in watched.happened(Event.REFUSED):
                    await self._carry_out(act, watched, peer, str(error))
            else:
                with contextlib.closing(writer):
                    for act in watched.happened(Event.ACCEPTED):
                        await self._carry_out(act, watched, peer)
                    await _until_closed(reader)
                continue
            await asyncio.sleep(PAUSE_S)

    async def _carry_out(
        self, act: Act, watched: WatchedPeer, peer: Registration, reason: str = ""
    ) -> None:
        match act:
            case Act.DEPOSE:
                await self._depose(peer[0])
            case Act.REPORT:
                if await self._report(peer, reason):
                    watched.happened(Event.REPORT_WRITTEN)
            case Act.WITHDRAW:
                if await self._withdraw(peer):
                    watched.happened(Event.WITHDRAWAL_WRITTEN)

    async def _report(self, peer: Registration, reason: str) -> bool:
        """Report the peer as a suspect; whether the store has accepted it."""
        lease = self._lease()
        if lease is None:
            return False
        broker_id, broker_epoch = peer
        put = SUSPECT.put((broker_id, self._node_id), SuspectValue(broker_epoch), lease.id)
        log.warning("peer_refuses_connections", broker=broker_id, reason=reason)
        is_registered = created_at(BROKER.key(broker_id), broker_epoch)
        has_reported = await self._written(Txn((is_registered,), (put,)))
        if has_reported:
            cause = f"it refuses connections: {reason}"
            facts = {"epoch": broker_epoch}
            decision = Decision(Kind.SUSPECTED, cause, broker=broker_id, facts=facts)
            self._decisions.record(decision)
        return has_reported

    async def _withdraw(self, peer: Registration) -> bool:
        return await self._written(Txn((), (SUSPECT.delete((peer[0], self._node_id)),)))

    async def _depose(self, broker_id: int) -> None:
        """If that broker is the controller, let another one be elected."""
        controller = self._follower.image.controller
        if controller is not None and controller.broker == broker_id:
            log.warning("controller_gone", broker=broker_id, epoch=controller.epoch)
            held = (created_at(CONTROLLER.prefix, controller.epoch),)
            if await self._written(Txn(held, (CONTROLLER.delete(None),))):
                cause = "it was the controller and refuses connections: there may be another one"
                self._decisions.record(Decision(Kind.SUSPECTED, cause, broker=broker_id))

    async def _written(self, txn: Txn) -> bool:
        try:
            await self._store.txn(txn)
        except (StoreUnavailable, StoreRefused, UnknownOutcome, LeaseNotFound) as error:
            log.warning("report_not_written", reason=str(error))
            return False
        return True

    # --- the controller's part

    async def _fence_suspects(self) -> None:
        while True:
            image = await self._follower.until(lambda image: bool(to_be_probed(image)))
            if self._controller.is_controller:
                for peer in to_be_probed(image).items():
                    if await self._refuses_connections(peer[0]):
                        await self._fence(*peer)
            await self._until_suspects_change(image)

    async def _until_suspects_change(self, image: ClusterImage) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_AGAIN_S):
                await self._follower.until(
                    lambda later: (
                        (later.suspects, later.controller) != (image.suspects, image.controller)
                    )
                )

    async def _refuses_connections(self, broker_id: int) -> bool:
        address = self._address(broker_id)
        if address is None:
            return False
        try:
            _, writer = await _connect(address)
        except TimeoutError:
            return False
        except OSError:
            return True
        writer.close()
        return False

    async def _fence(self, broker_id: int, broker_epoch: BrokerEpoch) -> None:
        def operation(image: ClusterImage, epoch: int, _: object) -> TermDecision[None]:
            return TermDecision(fence_suspect(image, epoch, broker_id, broker_epoch), None)

        log.warning("suspect_fenced", broker=broker_id, broker_epoch=broker_epoch)
        with contextlib.suppress(NotControllerError):
            await self._controller.submit(operation)


async def _connect(address: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a peer. Raises OSError if it refused, TimeoutError for any other failure.

    Former addresses of the peer are not tried: a refusal there proves nothing.
    """
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            return await HOST_NAMES.first(
                address.host,
                lambda host: asyncio.open_connection(host, address.port),
                only_current=True,
            )
    except UnicodeError as error:  # getaddrinfo could not encode the name by IDNA
        raise TimeoutError(f"{address.host!r} is not a name of a host") from error
    except OSError as error:
        if error.errno in _OWN_TROUBLE:
            raise TimeoutError(str(error)) from error
        raise


async def _until_closed(reader: asyncio.StreamReader) -> None:
    """Wait for its end; after a connection that ended at once, pause before the next."""
    began_s = asyncio.get_running_loop().time()
    with contextlib.suppress(OSError):
        while await reader.read(1):
            pass
    if asyncio.get_running_loop().time() - began_s < PAUSE_S:
        await asyncio.sleep(PAUSE_S)
