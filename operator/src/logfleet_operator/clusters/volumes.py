"""The brokers' volumes: wanted, requested and given sizes, and which are being deleted. PURE.

A claim's `spec` is the request, its `status` the actual volume (Kubernetes: PersistentVolumeClaim).
A Cluster's spec is checked against the actual volume: a size that could not be given can be taken
back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logfleet.resources.cluster import ClusterResource, set_name
from logfleet.resources.quantity import parse_quantity

from logfleet_operator import names
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.observed import ObservedCluster, is_bound
from logfleet_operator.clusters.pods import is_larger
from logfleet_operator.clusters.rollout import pods_losing_volumes
from logfleet_operator.names import Manifest


@dataclass(frozen=True, slots=True)
class Volume:
    """The volume of a broker that should exist, with its claim. Sizes are quantities.

    wanted: by the Cluster's spec. asked: by the claim's spec. given: by its status, else as asked.
    """

    claim: Manifest
    pool: str
    wanted: str
    asked: str
    given: str

    @property
    def name(self) -> str:
        """The name of its claim."""
        return str(self.claim["metadata"]["name"])

    @property
    def pod(self) -> str:
        return self.name.removeprefix("data-")

    @property
    def has(self) -> str:
        """The size that it certainly has: some provisioners give more than was requested."""
        return self.asked if is_larger(self.given, self.asked) else self.given


@dataclass(frozen=True, slots=True)
class PoolVolumes:
    """The existing volumes of a pool.

    size: of the smallest. class_: that its StatefulSets were created with, None for the default.
    """

    name: str
    size: str
    class_: str | None


def volumes_of(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> Iterator[Volume]:
    """Volumes of the pools in the spec, by the claim's name; unbound claims are left out."""
    sizes = {pool.name: pool.storage.size for pool in cluster.spec.pools}
    pools = {
        f"data-{set_name(cluster.metadata.name, given.pool, given.zone)}-{ordinal}": given.pool
        for given in ranges
        if given.pool in sizes
        for ordinal in range(given.replicas)
    }
    for claim in sorted(observed.volumes, key=lambda live: str(live["metadata"]["name"])):
        pool, asked = pools.get(claim["metadata"]["name"]), size_of(claim)
        if pool is not None and is_bound(claim) and asked:
            given = claim.get("status", {}).get("capacity", {}).get("storage", asked)
            yield Volume(claim, pool, sizes[pool], asked, str(given))


def by_pool(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> list[PoolVolumes]:
    """Pools that have volumes, in the order of the spec, to compare a new spec with."""
    found: dict[str, list[str]] = {}
    for volume in volumes_of(cluster, observed, ranges):
        found.setdefault(volume.pool, []).append(volume.has)
    classes = {
        given.pool: live["spec"]["volumeClaimTemplates"][0]["spec"].get("storageClassName")
        for given in ranges
        if (
            live := observed.get(
                "StatefulSet", set_name(cluster.metadata.name, given.pool, given.zone)
            )
        )
    }
    return [
        PoolVolumes(pool.name, min(found[pool.name], key=_amount), classes[pool.name])
        for pool in cluster.spec.pools
        if pool.name in found and pool.name in classes
    ]


def deletion_warnings(observed: ObservedCluster) -> Iterator[str]:
    """Warnings about volume claims that are being deleted while their pods run."""
    kept = {pod.name: pod.component for pod in observed.pods}
    for name in sorted(pods_losing_volumes(observed)):
        sentence = (
            f"PersistentVolumeClaim data-{name} is being deleted: its disk, with all that is on "
            f"it, goes as soon as pod {name} does, and no roll takes that away"
        )
        if kept[name] == names.BROKER:
            yield (
                f"{sentence}; when all of its partitions have in-sync replicas elsewhere, "
                f"`logfleet may-i stop ID && kubectl delete pod {name}`: it comes back empty and "
                f"is filled again"
            )
        else:
            yield (
                f"{sentence}; while a majority of the other members is ready, `kubectl delete pod "
                f"{name}`: the member is added again; a member that is alone has to be saved first "
                "(docs/how-to/operating.md, row 15)"
            )


def size_of(claim: Manifest) -> str:
    """The size that the claim requests; "" without one."""
    requests = claim.get("spec", {}).get("resources", {}).get("requests", {})
    return str(requests.get("storage", ""))


def _amount(size: str) -> float:
    return float(parse_quantity(size) or 0)
