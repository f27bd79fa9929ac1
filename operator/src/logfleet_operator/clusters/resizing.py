"""Volumes that are to be larger: their claims ask for more, and Kubernetes grows them while their pods run. PURE.

The claim template of a StatefulSet never changes, so a claim that is made of it later begins as small as the first ones and grows at once, too.
Source: KEP-284, PersistentVolumeClaim `spec.resources`; it needs a StorageClass that allows volume expansion.
"""

from collections.abc import Sequence

from logfleet.resources.cluster import ClusterResource, set_name
from logfleet.resources.plan import Reason, Refusal

from logfleet_operator.clusters.observed import Observed, is_bound
from logfleet_operator.clusters.pods import is_larger
from logfleet_operator.clusters.ranges import Range
from logfleet_operator.clusters.refusals import storage_class
from logfleet_operator.clusters.steps import ClusterPlan, GrowClaim, Stage, refused
from logfleet_operator.names import Manifest


def plan_resizing(
    cluster: ClusterResource, observed: Observed, ranges: Sequence[Range]
) -> ClusterPlan | None:
    """Of claims that have a volume; others wait until they have one."""
    sizes = {pool.name: pool.storage.size for pool in cluster.spec.pools}
    wanted = {
        f"data-{set_name(cluster.metadata.name, given.pool, given.zone)}": given.pool
        for given in ranges
        if given.pool in sizes
    }
    grows = []
    for claim in observed.volumes:
        name = str(claim["metadata"]["name"])
        pool = wanted.get(name.rpartition("-")[0])
        if pool is None or not is_bound(claim) or not is_larger(sizes[pool], size_of(claim)):
            continue
        class_name = claim["spec"].get("storageClassName")
        found = storage_class(observed, class_name)
        if found is None or not found.get("allowVolumeExpansion"):
            return refused(
                Refusal(
                    Reason.NOT_SUPPORTED,
                    f"spec.pools[{pool}].storage.size: StorageClass {class_name or '(the default one)'} does not allow volumes to grow "
                    f"(allowVolumeExpansion); write {size_of(claim)}, or add a pool with larger volumes",
                )
            )
        grows.append(GrowClaim(name, sizes[pool]))
    if not grows:
        return None
    return ClusterPlan(f"growing {len(grows)} volumes", tuple(grows), stage=Stage.MAKING)


def size_of(claim: Manifest) -> str:
    """What the claim asks for; "" if it does not say."""
    requests = claim.get("spec", {}).get("resources", {}).get("requests", {})
    return str(requests.get("storage", ""))
