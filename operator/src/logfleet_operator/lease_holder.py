"""Holds a Lease, so that one of several operators works, and lets only its holder write. SHELL.

A process may be suspended between any two lines (a stopped container, a starved node). So each
write goes through `guard`, which knows until when the Lease is held, and ends the write before
another operator can take the Lease.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import ObservedTopic, PartitionHealth, TopicAction

from logfleet_operator.admin import Admin, AdminFactory, AdminUnavailable
from logfleet_operator.kube import Kube, KubeConflict, KubeError, KubeUnavailable
from logfleet_operator.lease_rules import (
    LEASE_S,
    RENEW_S,
    RETRY_S,
    SeenLease,
    claimed,
    given_back,
    is_free,
    observed_lease,
)
from logfleet_operator.names import Manifest

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class LeaseLost(Exception):
    """Another operator may hold the Lease now: nothing may be written any more."""


class LeaseHolder:
    """One operator's part in the election. identity: unique to this process, for ever."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._kube = kube
        self._place = namespace, name
        self._identity = identity
        self._monotonic = monotonic
        self._now = now or (lambda: datetime.now(UTC))
        self._seen: SeenLease | None = None
        self._renewed: float | None = None

    @property
    def holds(self) -> bool:
        """Whether a write may start."""
        return self._renewed is not None and self._monotonic() < self._renewed + RENEW_S

    @property
    def stands_by(self) -> bool:
        """Whether another operator held the Lease at the last read; False before the first read."""
        if self._seen is None or self.holds:
            return False
        return self._seen.spec.get("holderIdentity", "") not in {"", self._identity}

    @property
    def was_read(self) -> bool:
        """Whether the API server has answered once who holds the Lease."""
        return self._seen is not None

    async def attempt(self) -> bool:
        """Take or renew the Lease if it is free; return whether that succeeded.

        Raises KubeError, KubeUnavailable.
        """
        namespace, name = self._place
        began = self._monotonic()
        live = await self._kube.get("Lease", namespace, name)
        self._seen = observed_lease(self._seen, live, self._monotonic())
        if not is_free(self._seen, self._identity, self._monotonic()):
            return False
        manifest = claimed(namespace, name, live, self._identity, self._now())
        try:
            if live is None:
                await self._kube.create(manifest)
            else:
                await self._kube.apply(manifest)
        except KubeConflict:
            return False  # another operator wrote first; the next read shows its Lease
        self._renewed = began
        return True

    async def acquire(self, tick: Callable[[], None]) -> None:
        """Return once the Lease is held. tick: called at each attempt.

        Raises LeaseLost if the API server does not allow the use of Leases.
        """
        logged = False
        while True:
            tick()
            try:
                async with asyncio.timeout(RENEW_S):
                    if await self.attempt():
                        log.info("lease_taken", lease=self._place[1], identity=self._identity)
                        return
            except (KubeError, KubeUnavailable, TimeoutError) as error:
                if isinstance(error, KubeError) and error.status in {401, 403}:
                    raise LeaseLost(
                        f"may not use Lease {self._place[1]} in {self._place[0]}: give the "
                        "operator's ServiceAccount the rights of "
                        f"charts/operator/templates/rbac.yaml ({error})"
                    ) from error
                log.warning("lease_unknown", lease=self._place[1], error=repr(error))
            if not logged and self._seen is not None:
                logged = True
                holder = self._seen.spec.get("holderIdentity", "")
                log.info("lease_awaited", lease=self._place[1], holder=holder)
            await asyncio.sleep(RETRY_S)

    async def keep(self) -> None:
        """Renew the Lease until cancelled. Raises LeaseLost."""
        while True:
            await asyncio.sleep(RETRY_S)
            renewed = self._renewed
            try:
                async with asyncio.timeout(max(0.0, self._left(RENEW_S))):
                    await self.attempt()
            except (KubeError, KubeUnavailable, TimeoutError) as error:
                log.warning("lease_not_renewed", lease=self._place[1], error=repr(error))
            if not self.holds or (self._renewed == renewed and self._is_anothers()):
                self._renewed = None
                raise LeaseLost(f"Lease {self._place[1]} in {self._place[0]} is not held any more")

    async def release(self) -> None:
        """Give the Lease back, if it is held; no work may be under way. Errors are logged."""
        namespace, name = self._place
        if not self.holds:
            return
        self._renewed = None
        try:
            async with asyncio.timeout(RETRY_S):
                live = await self._kube.get("Lease", namespace, name)
                if live is not None and live["spec"].get("holderIdentity") == self._identity:
                    await self._kube.apply(given_back(namespace, name, live, self._now()))
        except (KubeError, KubeUnavailable, TimeoutError) as error:
            log.warning("lease_not_given_back", lease=name, error=repr(error))

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Guard one write: raises LeaseLost if none may start, or if it does not end in time."""
        if not self.holds:
            raise LeaseLost(f"Lease {self._place[1]} is not held")
        try:
            async with asyncio.timeout(self._left(LEASE_S)):
                yield
        except TimeoutError as error:
            raise LeaseLost(f"Lease {self._place[1]} ended during a write") from error

    def _left(self, of_s: float) -> float:
        assert self._renewed is not None
        return self._renewed + of_s - self._monotonic()

    def _is_anothers(self) -> bool:
        """Whether another operator held the Lease at the last read."""
        assert self._seen is not None
        return bool(self._seen.spec.get("holderIdentity", "") != self._identity)


class GuardedKube:
    """A Kube whose writes need the Lease; without it they raise KubeUnavailable."""

    def __init__(self, kube: Kube, leadership: LeaseHolder) -> None:
        self._kube = kube
        self._leadership = leadership

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return await self._kube.get(kind, namespace, name)

    async def list(
        self, kind: str, namespace: str, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        return await self._kube.list(kind, namespace, labels)

    async def create(self, manifest: Manifest) -> None:
        async with self._guard():
            await self._kube.create(manifest)

    async def apply(self, manifest: Manifest) -> Manifest:
        async with self._guard():
            return await self._kube.apply(manifest)

    async def apply_status(self, manifest: Manifest) -> None:
        async with self._guard():
            await self._kube.apply_status(manifest)

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        async with self._guard():
            await self._kube.delete(kind, namespace, name, uid)

    async def evict_pod(self, namespace: str, name: str, uid: str) -> bool:
        async with self._guard():
            return await self._kube.evict_pod(namespace, name, uid)

    @asynccontextmanager
    async def _guard(self) -> AsyncIterator[None]:
        try:
            async with self._leadership.guard():
                yield
        except LeaseLost as error:
            raise KubeUnavailable(str(error)) from error


class GuardedAdmin:
    """An Admin whose changes need the Lease; without it they raise AdminUnavailable."""

    def __init__(self, admin: Admin, leadership: LeaseHolder) -> None:
        self._admin = admin
        self._leadership = leadership

    async def describe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        return await self._admin.describe(names)

    async def partition_health(self) -> PartitionHealth:
        return await self._admin.partition_health()

    async def perform(self, actions: Sequence[TopicAction]) -> None:
        async with self._guard():
            await self._admin.perform(actions)

    async def configure(self, desired: ClusterResource) -> str:
        async with self._guard():
            return await self._admin.configure(desired)

    async def close(self) -> None:
        await self._admin.close()

    @asynccontextmanager
    async def _guard(self) -> AsyncIterator[None]:
        try:
            async with self._leadership.guard():
                yield
        except LeaseLost as error:
            raise AdminUnavailable(str(error)) from error


class GuardedAdmins:
    """An AdminFactory that opens LedAdmins."""

    def __init__(self, admins: AdminFactory, leadership: LeaseHolder) -> None:
        self._admins = admins
        self._leadership = leadership

    async def open(self, bootstrap: str) -> Admin:
        return GuardedAdmin(await self._admins.open(bootstrap), self._leadership)
