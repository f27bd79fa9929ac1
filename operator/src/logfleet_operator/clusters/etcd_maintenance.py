"""Maintains managed etcds: one step of `defragmentation` per pass. SHELL."""

from collections.abc import Callable
from typing import Final

import structlog
from logfleet.resources.cluster import ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters import defragmentation, etcd
from logfleet_operator.clusters.etcd_client import Etcds, EtcdUnavailable, etcd_access
from logfleet_operator.clusters.observed import ObservedCluster
from logfleet_operator.event_text import EventText

CHECK_S: Final = 300.0
# While there is work to do, or etcd takes no writes.
BUSY_S: Final = 15.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class EtcdMaintenance:
    """warnings: uid of a Cluster -> the warning about its etcd for its status."""

    def __init__(self, etcds: Etcds, seconds: Callable[[], float]) -> None:
        self._etcds = etcds
        self._seconds = seconds
        self._due: dict[str, float] = {}
        self.warnings: dict[str, str] = {}

    async def run_step(
        self, cluster: ClusterResource, observed: ObservedCluster
    ) -> EventText | None:
        """Do the next step if it is due and all members are ready; return the Event for it."""
        managed, uid, now = cluster.spec.metadata.managed, cluster.metadata.uid, self._seconds()
        ready = [pod for pod in observed.of_component(names.ETCD) if pod.ready and not pod.deleting]
        if managed is None or len(ready) < managed.replicas or now < self._due.get(uid, 0.0):
            return None
        self._due[uid] = now + CHECK_S
        quota = etcd.quota_bytes(managed.storage)
        try:
            access = etcd_access(cluster, observed)
            members = [await self._etcds.status(access, each) for each in access.endpoints]
            no_space = await self._etcds.has_no_space(access)
            self.warnings[uid] = defragmentation.warning(
                members, no_space=no_space, quota_bytes=quota
            )
            step = defragmentation.next_step(members, no_space=no_space, quota_bytes=quota)
            if step is None:
                return None
            self._due[uid] = now + BUSY_S
            if isinstance(step, defragmentation.Defragment):
                await self._etcds.defragment(access, step.endpoint)
                return EventText("Normal", "EtcdDefragmented", step.endpoint, f"{now}")
            await self._etcds.disarm(access)
            return EventText("Normal", "EtcdHasSpace", "the alarm NOSPACE is ended", f"{now}")
        except EtcdUnavailable as error:
            log.warning("etcd_unavailable", cluster=cluster.metadata.name, error=str(error))
            return None
