"""Sets the part of a Cluster's configuration that running brokers can change. SHELL."""

from collections.abc import Callable
from typing import Final

import structlog
from logfleet.resources.cluster import ClusterResource
from msgspec.structs import replace

from logfleet_operator.admin import Admin, AdminRefused
from logfleet_operator.clusters.manifests import dynamic_config
from logfleet_operator.event_text import EventText
from logfleet_operator.events import Events
from logfleet_operator.names import Manifest

# How often to check for changes by others; a change of the spec is set at once.
CHECK_S: Final = 60.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class LiveConfig:
    """refused: uid of a Cluster -> why the brokers refuse its configuration."""

    def __init__(self, events: Events, monotonic: Callable[[], float]) -> None:
        self._events = events
        self._monotonic = monotonic
        self._checked: dict[str, tuple[dict[str, str], float]] = {}
        self.refused: dict[str, str] = {}

    async def apply(self, cluster: ClusterResource, found: Manifest, admin: Admin) -> None:
        """Give the brokers the whole configuration, or set `refused`. Raises AdminUnavailable."""
        uid, generation, now = cluster.metadata.uid, cluster.metadata.generation, self._monotonic()
        config, known = dynamic_config(cluster), self._checked.get(uid)
        if known is not None and known[0] == config and now - known[1] < CHECK_S:
            return
        wanted = replace(cluster, spec=replace(cluster.spec, config={**config}))
        try:
            changed = await admin.configure(wanted)
        except AdminRefused as error:
            self.refused[uid] = f"spec.config: the brokers refuse it: {error}"
        else:
            self.refused.pop(uid, None)
            if changed:
                log.info("config_changed", cluster=cluster.metadata.name, keys=changed)
                event = EventText("Normal", "ConfigChanged", changed, f"{generation}/{now}")
                await self._events.write(found, event)
        self._checked[uid] = config, now
