"""Which release of the operator manages a Cluster: the one whose Lease its status names. SHELL.

The processes of one release elect a leader by the Lease of that release (`lease_rules`). Several
releases may watch the same namespaces, and two versions would undo each other's work. So the first
one that sees a Cluster writes the name of its Lease into `status.operator`, over the object that it
read: of two, one succeeds. The others leave the Cluster, its Topics and its Rebalances alone until
that Lease is gone for LEASE_S or was not renewed for HANDOVER_S, which is much longer than a
release is away during an upgrade.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from logfleet_operator.event_text import EventText
from logfleet_operator.events import Events
from logfleet_operator.kube import Kube, KubeError
from logfleet_operator.lease_rules import LEASE_S, SeenLease, observed_lease
from logfleet_operator.names import Manifest
from logfleet_operator.writes import write_status

HANDOVER_S: Final = 300.0
OTHERS_RECHECK_S: Final = 15.0
LISTED_MAX: Final = 5

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Ownership:
    """Which Clusters this release manages, and which ones other releases do.

    mine: NAMESPACE/NAME of this release's Lease; "" for an operator without one, which manages all
    Clusters. others: (namespace, Cluster) -> the Lease of the release that manages it.
    """

    def __init__(
        self,
        kube: Kube,
        mine: str,
        events: Events,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self.mine = mine
        self._events = events
        self._monotonic = monotonic
        self._seen: dict[str, SeenLease] = {}
        self.others: dict[tuple[str, str], str] = {}

    def has(self, cluster: Mapping[str, Any]) -> bool:
        """Whether this live Cluster belongs to this release, by its status."""
        return not self.mine or _holder(cluster) == self.mine

    async def take(self, cluster: Manifest) -> Manifest | None:
        """Take the Cluster if no release has it.

        Returns the live Cluster, None if another release has it.

        None also if the Cluster is gone. Raises KubeConflict if somebody wrote it meanwhile.
        """
        metadata, holder = cluster["metadata"], _holder(cluster)
        key = metadata["namespace"], metadata["name"]
        if not self.has(cluster):
            if holder and await self._is_in_use(holder):
                await self._leave(cluster, holder)
                return None
            status = {**cluster.get("status", {}), "operator": self.mine}
            await write_status(self._kube, cluster, status)
            log.info("cluster_taken", namespace=key[0], cluster=key[1], before=holder)
            self.others.pop(key, None)
            return await self._kube.get("Cluster", *key)
        self.others.pop(key, None)
        return cluster

    def remove(self, namespace: str, name: str) -> None:
        """Remove a deleted Cluster."""
        self.others.pop((namespace, name), None)

    def __str__(self) -> str:
        """The Clusters of other releases, for people; "" for none."""
        listed = [f"{'/'.join(key)} by {holder}" for key, holder in sorted(self.others.items())]
        if not listed:
            return ""
        return (
            f"other operators look after {len(listed)} Clusters: {', '.join(listed[:LISTED_MAX])}"
        )

    async def _is_in_use(self, holder: str) -> bool:
        """Whether a release may still work under this Lease; True if that cannot be read."""
        try:
            live = await self._kube.get("Lease", *holder.partition("/")[::2])
        except KubeError as error:
            log.warning("lease_of_another_unknown", lease=holder, error=str(error))
            return True
        now = self._monotonic()
        seen = self._seen[holder] = observed_lease(self._seen.get(holder), live, now)
        # A release whose Lease was deleted creates it again at once.
        return now - seen.since < (LEASE_S if live is None else HANDOVER_S)

    async def _leave(self, cluster: Manifest, holder: str) -> None:
        """Leave the Cluster to the release of `holder`, and report that once."""
        metadata = cluster["metadata"]
        key = metadata["namespace"], metadata["name"]
        if self.others.get(key) == holder:
            return
        self.others[key] = holder
        note = (
            f"the operator of Lease {holder} looks after this Cluster. That of {self.mine}, which "
            f"watches it too, "
            f"leaves it alone until that Lease is gone or was not renewed for {HANDOVER_S:.0f} s"
        )
        log.warning("cluster_of_another", namespace=key[0], cluster=key[1], why=note)
        await self._events.write(cluster, EventText("Warning", "AnotherOperator", note, self.mine))


def _holder(cluster: Mapping[str, Any]) -> str:
    return str(cluster.get("status", {}).get("operator", ""))
