"""The brokers' volumes: what of each was wanted, asked for and given, and which are about to go. PURE.

A claim's `spec` says what it asks for, its `status` what there is (Kubernetes: PersistentVolumeClaim).
What the spec of a Cluster may say is judged by what there is: a size that nobody could give can be
taken back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logfleet.resources.cluster import ClusterResource, set_name
from logfleet.resources.quantity import parse_quantity

from logfleet_operator import names
from logfleet_operator.clusters.broker_id_ranges import Range
from logfleet_operator.clusters.observed import ObservedCluster, is_bound
from logfleet_operator.clusters.pods import is_larger
from logfleet_operator.clusters.rollout import pods_with_going_volumes
from logfleet_operator.names import Manifest


@dataclass(frozen=True, slots=True)
class Volume:
    """Of a broker that there is to be, with its claim. Sizes are quantities.

    wanted: by the spec. asked: by the claim. given: by its status; as asked where that says nothing.
    """

    claim: Manifest
    pool: str
    wanted: str
    asked: str
    given: str

    @property
    def name(self) -> str:
        """Of its claim."""
        return str(self.claim["metadata"]["name"])

    @property
    def pod(self) -> str:
        return self.name.removeprefix("data-")

    @property
    def has(self) -> str:
        """What it has for certain: some provisioners give more than was asked for."""
        return self.asked if is_larger(self.given, self.asked) else self.given


@dataclass(frozen=True, slots=True)
class PoolVolumes:
    """What volumes of a pool there are. size: of the smallest. class_: as its sets were made with, None for the default one."""

    name: str
    size: str
    class_: str | None


def volumes_of(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[Range]
) -> Iterator[Volume]:
    """Of the pools that the spec names, by name of the claim; those without a volume are none yet."""
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
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[Range]
) -> list[PoolVolumes]:
    """Of pools that have volumes, in the order of the spec: what a new spec is compared with."""
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


def going(observed: ObservedCluster) -> Iterator[str]:
    """What is at risk: volume claims that are being deleted while their pods run."""
    kept = {pod.name: pod.component for pod in observed.pods}
    for name in sorted(pods_with_going_volumes(observed)):
        said = (
            f"PersistentVolumeClaim data-{name} is being deleted: its disk, with all that is on it, goes "
            f"as soon as pod {name} does, and no roll takes that away"
        )
        if kept[name] == names.BROKER:
            yield (
                f"{said}; when all of its partitions have in-sync replicas elsewhere, "
                f"`logfleet may-i stop ID && kubectl delete pod {name}`: it comes back empty and is filled again"
            )
        else:
            yield (
                f"{said}; while a majority of the other members is ready, `kubectl delete pod {name}`: "
                "the member is added again; a member that is alone has to be saved first (docs/operating.md, row 15)"
            )


def size_of(claim: Manifest) -> str:
    """What the claim asks for; "" if it does not say."""
    requests = claim.get("spec", {}).get("resources", {}).get("requests", {})
    return str(requests.get("storage", ""))


def _amount(size: str) -> float:
    return float(parse_quantity(size) or 0)
