"""The ledger's ConfigMaps: reading them, and writing those that changed. SHELL."""

from collections.abc import Mapping

from logfleet.resources.document import Metadata

from logfleet_operator import ledger, manifests, names
from logfleet_operator.kube import Kube
from logfleet_operator.ledger import Ledger


class LedgerStore:
    """lines: what the ConfigMaps say now. cluster: the metadata of the Cluster they belong to."""

    def __init__(self, kube: Kube, cluster: Metadata) -> None:
        self._kube = kube
        self._cluster = cluster
        self._versions: dict[str, str] = {}
        self._contents: dict[str, Mapping[str, str]] = {}
        self.lines: Ledger = {}

    async def load(self) -> Ledger:
        """Raises LedgerDamaged for a line that is none."""
        component = names.selector(self._cluster.name, "ledger")
        found = await self._kube.list("ConfigMap", self._cluster.namespace, component)
        for live in found:
            name = live["metadata"]["name"]
            self._versions[name] = live["metadata"]["resourceVersion"]
            self._contents[name] = live.get("data") or {}
        self.lines = ledger.read(self._cluster.name, found)
        return self.lines

    async def write(self, lines: Ledger) -> None:
        """Afterwards the ledger holds exactly `lines`. Raises KubeConflict if somebody else wrote."""
        if lines == self.lines:
            return
        for manifest in ledger.shards(self._cluster.name, lines):
            name = manifest["metadata"]["name"]
            if manifest["data"] == self._contents.get(name, {}):
                continue
            complete = manifests.owned(self._cluster, manifest)
            if name in self._versions:
                complete["metadata"]["resourceVersion"] = self._versions[name]
            written = await self._kube.apply(complete)
            self._versions[name] = written["metadata"]["resourceVersion"]
            self._contents[name] = manifest["data"]
        self.lines = lines
