"""Reads the ledger's ConfigMaps, and writes those that changed. SHELL."""

from collections.abc import Mapping

from logfleet.resources.document import Metadata
from logfleet.resources.plan import Reason, SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.observed import ObjectConflict
from logfleet_operator.kube import Kube, KubeConflict, KubeError, Refused
from logfleet_operator.names import Manifest
from logfleet_operator.topics import ledger
from logfleet_operator.topics.ledger import Ledger
from logfleet_operator.writes import refuse_foreign


class LedgerStore:
    """lines: the content of the ConfigMaps. cluster: the metadata of their Cluster.

    refused: receives the ConfigMaps that the API server refuses.
    """

    def __init__(self, kube: Kube, cluster: Metadata, refused: Refused) -> None:
        self._kube = kube
        self._cluster = cluster
        self._refused = refused
        self._versions: dict[str, str] = {}
        self._contents: dict[str, Mapping[str, str]] = {}
        self.lines: Ledger = {}

    async def load(self) -> Ledger:
        """Read the ledger. Raises LedgerDamaged for a malformed line."""
        component = names.selector(self._cluster.name, "ledger")
        found = await self._kube.list("ConfigMap", self._cluster.namespace, component)
        for live in found:
            name = live["metadata"]["name"]
            self._versions[name] = live["metadata"]["resourceVersion"]
            self._contents[name] = live.get("data") or {}
        self.lines = ledger.read(self._cluster.name, found)
        return self.lines

    async def write(self, lines: Ledger) -> None:
        """Make the ledger equal to `lines`, except for ConfigMaps that are refused, which stay.

        Raises KubeConflict if somebody else wrote: then `self.lines` differ from the ledger.
        """
        if lines == self.lines:
            return
        for manifest in ledger.shards(self._cluster.name, lines):
            name = manifest["metadata"]["name"]
            if manifest["data"] == self._contents.get(name, {}):
                continue
            try:
                written = await self._apply(manifests.owned(self._cluster, manifest))
            except KubeConflict:
                raise
            except KubeError as error:
                self._refused["ConfigMap", name] = error
                continue
            self._refused.pop(("ConfigMap", name), None)
            self._versions[name] = written["metadata"]["resourceVersion"]
            self._contents[name] = manifest["data"]
        kept = {topic: line for topic, line in self.lines.items() if self._error_of(topic)}
        self.lines = {
            **{topic: line for topic, line in lines.items() if not self._error_of(topic)},
            **kept,
        }

    async def _apply(self, manifest: Manifest) -> Manifest:
        """As Kube's apply; another owner's ConfigMap is left alone and counts as refused."""
        version = self._versions.get(manifest["metadata"]["name"])
        if version is not None:
            manifest["metadata"]["resourceVersion"] = version
            return await self._kube.apply(manifest)
        try:
            await refuse_foreign(self._kube, self._cluster, manifest)
        except ObjectConflict as error:
            raise KubeError(409, "AlreadyExists", str(error)) from error
        return await self._kube.apply(manifest)

    def unwritten(self, lines: Ledger) -> dict[str, SpecRefusal]:
        """Topic name -> refusal, for each line whose change or removal could not be written.

        What such a line announces must not be done.
        """
        differing = {
            topic for topic in {*lines, *self.lines} if lines.get(topic) != self.lines.get(topic)
        }
        return {
            topic: SpecRefusal(
                Reason.PROGRESSING,
                f"Kubernetes refuses ConfigMap {self._shard_of(topic)}, without whose line nothing "
                f"is done with topic {topic}: {self._error_of(topic)}",
            )
            for topic in sorted(differing)
        }

    def _shard_of(self, topic: str) -> str:
        return ledger.shard_name(self._cluster.name, ledger.shard_of(topic))

    def _error_of(self, topic: str) -> KubeError | None:
        return self._refused.get(("ConfigMap", self._shard_of(topic)))
