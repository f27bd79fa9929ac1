"""This broker's place in the fleet: the cluster it belongs to, and its registration under a lease.

The registration `broker/ID` is created if absent, never over another's: two living processes with
one id must be impossible (KAFKA-14885: an isolated old broker and its replacement lost data). Its
create revision is the broker epoch (KIP-380), which every other rule compares. A process that finds
the id taken waits until the holder's lease has ended.

A registration ends with its lease, or when the cluster ends it: the key is gone or made by another,
or fenced by the controller (etcd before 3.4.38, 3.5.23 and 3.6.5 may confirm keepalives of a
revoked lease). Then this broker leads nothing until it has registered again.
"""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec
import structlog

from logfleet import __version__
from logfleet.controller.brokers.feature_level import LEVEL_MIN, cannot_join
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import BrokerValue, FeaturesValue
from logfleet.metadata.store import (
    Deleted,
    Get,
    KeyValue,
    Lease,
    LeaseNotFound,
    MetadataStore,
    Put,
    Snapshot,
    StoreUnavailable,
    Txn,
    absent,
    modified_at,
    value_is,
)
from logfleet.store.claims import create_once, settle
from logfleet.store.loader import MetadataLoader
from logfleet.store.refused_writes import RefusedWrites, settle_when_accepted
from logfleet.types import BrokerEpoch

T = TypeVar("T")
log = structlog.get_logger()

LEASE_TTL_S: Final = 3
"""Time for which a dead broker counts as alive. Kafka's broker.session.timeout.ms is 9 s."""
TAKEN_S_MAX: Final = 60.0
"""Longest time that a start waits for an id that another process holds.

Kafka: initial.broker.registration.timeout.ms.
"""
UNAVAILABLE_PAUSE_S: Final = 0.2
"""Short: a store that is unavailable has already tried for seconds."""


class RegistrationError(Exception):
    """This broker must not run. The text says why, in one line.

    ├── WrongCluster   its data belongs to another cluster than the metadata store
    ├── NoCluster      there is none yet, and this broker must not begin one
    ├── LevelTooHigh   the cluster's feature level is one that it cannot do
    └── IdTaken        another process holds its id
    """


class WrongCluster(RegistrationError):
    pass


class NoCluster(RegistrationError):
    pass


class LevelTooHigh(RegistrationError):
    pass


class IdTaken(RegistrationError):
    pass


class Registration(msgspec.Struct, frozen=True):
    """A registration, which may have ended since. epoch: the broker epoch."""

    broker_id: int
    epoch: BrokerEpoch
    lease: Lease

    def ended_in(self, image: ClusterImage) -> str:
        """Why it has ended, as `image` shows; empty if it has not, or the image is older."""
        if image.revision < self.epoch:
            return ""
        broker = image.brokers.get(self.broker_id)
        if broker is None:
            return "the registration is gone"
        if broker.epoch != self.epoch:
            return "another process has registered this id"
        fence = image.fences.get(self.broker_id)
        if fence and fence.broker_epoch == self.epoch and fence.state == keys.FENCED:
            return "the controller has fenced this broker"
        return ""


def new_cluster_id() -> str:
    """16 random bytes in Kafka's text form, not beginning with a dash (Kafka: Uuid.randomUuid)."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()).startswith("-"):
        pass
    return text


async def join_cluster(
    store: MetadataStore,
    on_disk: str | None,
    *,
    unreadable: Mapping[str, OSError] | None = None,
    level: int = LEVEL_MIN,
) -> str:
    """The cluster's id; the first broker of a new cluster makes it. Nothing is written to disk.

    on_disk: cluster.id of this broker's meta.properties, None if it holds no data. unreadable: log
    directories that may hold data, with their errors. level: the highest feature level that this
    broker supports; a new cluster starts with it, as there is no older version to return to. Raises
    LevelTooHigh. Raises WrongCluster if this broker holds data of another cluster, or the store has
    lost its own: a store that was wiped or mistaken must not make brokers drop their logs. Raises
    NoCluster if an unreadable directory may hold data of an older cluster. Waits as long as the
    store is away.
    """
    if on_disk is None and not unreadable:
        features = Put(keys.FEATURES, keys.encode(FeaturesValue(level, __version__)))
        made = await create_once(store, keys.CLUSTER_ID, new_cluster_id().encode(), features)
        cluster_id = made.decode()
    else:
        cluster_id = await _existing_cluster(store, on_disk, unreadable or {})
    await _features(store, level)
    return cluster_id


async def _existing_cluster(
    store: MetadataStore, on_disk: str | None, unreadable: Mapping[str, OSError]
) -> str:
    held = await retry_while_unavailable(lambda: store.get(keys.CLUSTER_ID))
    if on_disk is None:
        if held is None:
            reasons = ", ".join(f"{path}: {error}" for path, error in unreadable.items())
            raise NoCluster(
                "no new cluster is created while a log directory cannot be read, as it may belong "
                f"to one ({reasons})"
            )
        return held.value.decode()
    if held is None:
        raise WrongCluster(
            f"the data here belongs to cluster {on_disk}, but the metadata store knows no cluster: "
            "what Apache Kafka wrote is taken over by `logfleet adopt`; else the store was wiped, "
            "or the configuration names another one"
        )
    if held.value.decode() != on_disk:
        raise WrongCluster(
            f"the data here belongs to cluster {on_disk}, the metadata store to "
            f"{held.value.decode()}: configure the log.dirs and the store that belong together; "
            "meta.properties is right, leave it as it is"
        )
    return on_disk


async def register(
    store: MetadataStore,
    broker_id: int,
    value: BrokerValue,
    *,
    ttl_s: int = LEASE_TTL_S,
    taken_s_max: float = TAKEN_S_MAX,
    former: Registration | None = None,
) -> Registration:
    """Register under a new lease. Waits as long as the store is away.

    former: this process's last registration. It may still stand, since etcd renews all leases after
    a restart or an election of its own; then it is ended first. Raises LevelTooHigh; IdTaken if
    another process holds the id for `taken_s_max` from when that was first seen.
    """
    taken_at_s: float | None = None
    loop = asyncio.get_running_loop()
    while True:
        lease = await retry_while_unavailable(lambda: store.grant_lease(ttl_s))
        try:
            held = await _claim(store, keys.broker(broker_id), value, lease)
        except LeaseNotFound:  # the store was away for longer than the lease lives
            continue
        except BaseException:
            await _give_up(lease)
            raise
        if held.lease == lease.id:
            log.info("broker_registered", broker=broker_id, epoch=held.create_revision)
            return Registration(broker_id, BrokerEpoch(held.create_revision), lease)
        await _give_up(lease)
        if former is not None and held.lease == former.lease.id:
            await retry_while_unavailable(former.lease.revoke)
            continue
        if taken_at_s is None:
            taken_at_s = loop.time()
            log.warning("broker_id_taken", broker=broker_id, holder=_holder(held))
        try:
            async with asyncio.timeout_at(taken_at_s + taken_s_max):
                await _until_released(store, held)
        except TimeoutError:
            raise IdTaken(
                f"broker id {broker_id} is held by another process, {_holder(held)}"
            ) from None


async def _claim(store: MetadataStore, key: str, value: BrokerValue, lease: Lease) -> KeyValue:
    """The registration as it is now; it is this broker's if it has our lease.

    The same write checks the cluster's feature level: this broker supports it, and no raise of it
    can miss this broker (`feature_level`). Raises LevelTooHigh, LeaseNotFound.
    """
    encoded = keys.encode(value)
    while True:
        held, features = await _features(store, value.level)
        unchanged = absent(keys.FEATURES) if held is None else value_is(keys.FEATURES, held.value)
        puts = Put(key, encoded, lease.id), Put(keys.FEATURES, features)
        result = await settle(store, Txn((absent(key), unchanged), puts, (Get(key),)))
        if result.succeeded:
            return KeyValue(key, encoded, result.revision, result.revision, 1, lease.id)
        if (there := result.reads[0]) is not None:
            return there


async def _features(store: MetadataStore, level: int) -> tuple[KeyValue | None, bytes]:
    """Return the stored feature level's key, and a value that leaves the level unchanged.

    The key is None if nothing is stored. Raises LevelTooHigh if this broker cannot join.
    """
    held = await retry_while_unavailable(lambda: store.get(keys.FEATURES))
    encoded = keys.encode(FeaturesValue()) if held is None else held.value
    reason = cannot_join(msgspec.json.decode(encoded, type=FeaturesValue), level)
    if reason:
        raise LevelTooHigh(reason)
    return held, encoded


class Registrar:
    """Keeps one broker registered for as long as `run` runs.

    on_registered, on_lost: called on the loop, in turns; between on_lost and the next on_registered
    the broker must lead nothing. They must not raise. refused: updates of the registration that the
    store refused.
    """

    def __init__(
        self,
        store: MetadataStore,
        follower: MetadataLoader,
        broker_id: int,
        value: BrokerValue,
        *,
        on_registered: Callable[[Registration], None],
        on_lost: Callable[[str], None],
        ttl_s: int = LEASE_TTL_S,
        taken_s_max: float = TAKEN_S_MAX,
    ) -> None:
        self._store = store
        self._follower = follower
        self._broker_id = broker_id
        self._value = value
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._ttl_s = ttl_s
        self._taken_s_max = taken_s_max
        self.refused = RefusedWrites()
        self._updated = asyncio.Event()
        self._registration: Registration | None = None
        self._lease: Lease | None = None  # the last registration's, until revoked

    def update(self, value: BrokerValue) -> None:
        """Register with this value from now on. A standing registration is rewritten, same epoch.

        Not for a change of `previous_epoch` alone, which matters to the next registration only.
        """
        self._value = value
        self._updated.set()

    @property
    def registration(self) -> Registration | None:
        """The present registration, None while there is none."""
        return self._registration

    async def run(self) -> None:
        """Register, and again whenever the registration is lost.

        Ends only by IdTaken, LevelTooHigh, StoreRefused, StoreReplaced.
        """
        former: Registration | None = None
        while True:
            value = self._value
            registration = self._registration = await register(
                self._store,
                self._broker_id,
                value,
                ttl_s=self._ttl_s,
                taken_s_max=self._taken_s_max,
                former=former,
            )
            self._lease = registration.lease
            self._on_registered(registration)
            reason = await self._lost(registration, value)
            self._registration = None
            log.error("broker_registration_lost", broker=self._broker_id, reason=reason)
            self._on_lost(reason)
            await _give_up(registration.lease)
            self._lease = None
            former = registration

    async def leave(self) -> None:
        """Unregister now, not when the lease ends. Call it after `run` was cancelled.

        Nothing happens if not registered. A registration that was lost as the broker stopped counts
        too: its key may still be there.
        """
        lease, self._lease, self._registration = self._lease, None, None
        if lease is not None:
            await _give_up(lease)

    async def _lost(self, registration: Registration, value: BrokerValue) -> str:
        """Return why the registration has ended; write updates into it until then.

        value: as it was registered.
        """
        writing = asyncio.ensure_future(self._write_updates(registration, value))
        expired = asyncio.ensure_future(registration.lease.lost())
        seen = asyncio.ensure_future(
            self._follower.until(lambda image: bool(registration.ended_in(image)))
        )
        try:
            await asyncio.wait([expired, seen, writing], return_when=asyncio.FIRST_COMPLETED)
            if seen.done():
                return registration.ended_in(seen.result())
            return writing.result() if writing.done() else "the lease has ended"
        finally:
            for task in (expired, seen, writing):
                task.cancel()
            await asyncio.wait([expired, seen, writing])

    async def _write_updates(self, registration: Registration, written: BrokerValue) -> str:
        """Write each update; return why the registration has ended if a write finds that.

        Raises StoreReplaced.
        """
        key = keys.broker(self._broker_id)
        revision: int = registration.epoch
        while True:
            value = self._value
            if value == msgspec.structs.replace(written, previous_epoch=value.previous_epoch):
                self._updated.clear()
                await self._updated.wait()
                continue
            put = Put(key, keys.encode(value), registration.lease.id)
            try:
                txn = Txn((modified_at(key, revision),), (put,), (Get(key),))
                result = await settle_when_accepted(self._store, txn, self.refused, key)
            except LeaseNotFound:
                return "the lease has ended"
            if result.succeeded:
                revision, written = result.revision, value
                continue
            held = result.reads[0]
            if held is None or held.create_revision != registration.epoch:
                return "the registration is gone"
            # an unanswered attempt was applied
            revision, written = held.mod_revision, msgspec.json.decode(held.value, type=BrokerValue)


async def _give_up(lease: Lease) -> None:
    """Revoke it if the store is reachable; else it expires."""
    with contextlib.suppress(StoreUnavailable):
        await lease.revoke()


async def _until_released(store: MetadataStore, held: KeyValue) -> None:
    """Return once `held` is deleted or created again."""
    async with aclosing(store.watch(held.key)) as changes:
        async for change in changes:
            events = change.items if isinstance(change, Snapshot) else change.events
            present = [event for event in events if event.key == held.key]
            if isinstance(change, Snapshot) and not present:
                return
            for event in present:
                if isinstance(event, Deleted) or event.create_revision != held.create_revision:
                    return


async def retry_while_unavailable(call: Callable[[], Awaitable[T]]) -> T:
    """Call until the store is available; return the result."""
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            log.warning("metadata_store_unavailable", reason=str(error))
        await asyncio.sleep(UNAVAILABLE_PAUSE_S)


def _holder(held: KeyValue) -> str:
    value = msgspec.json.decode(held.value, type=BrokerValue)
    where = ", ".join(f"{each.name}://{each.host}:{each.port}" for each in value.listeners)
    return f"incarnation {value.incarnation} at {where or 'no address'}"
