"""Grows volumes: their claims ask for more, and Kubernetes grows them while their pods run. PURE.

The claim template of a StatefulSet never changes, so a claim made from it later starts as small as
the first ones and is grown at once. A request that is not fulfilled can be taken back, to a size
above the present one.

Source: KEP-284, PersistentVolumeClaim `spec.resources`; it needs a StorageClass that allows volume
expansion. KEP-1790 (Kubernetes 1.32): asking for less again, and the conditions of a claim.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import Reason, SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.observed import ObservedCluster
from logfleet_operator.clusters.pods import is_larger
from logfleet_operator.clusters.refusals import storage_class
from logfleet_operator.clusters.steps import ClusterPlan, GrowClaim, Stage
from logfleet_operator.clusters.volumes import Volume, volumes_of
from logfleet_operator.names import Manifest

# Kubernetes grows a volume and its file system within minutes; after this time warn.
LATE: Final = timedelta(minutes=5)
LISTED_MAX: Final = 3
FAILED: Final = ("ControllerResizeError", "NodeResizeError")
WAITS_FOR_POD: Final = "FileSystemResizePending"


def plan_resizing(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> ClusterPlan | None:
    """Resize claims that have a volume; others wait until they have one."""
    changes = [
        GrowClaim(volume.name, volume.wanted)
        for volume in volumes_of(cluster, observed, ranges)
        if (is_larger(volume.wanted, volume.asked) and _may_grow(observed, volume))
        or (is_larger(volume.asked, volume.wanted) and is_larger(volume.wanted, volume.given))
    ]
    if not changes:
        return None
    return ClusterPlan(f"growing {len(changes)} volumes", tuple(changes), stage=Stage.MAKING)


def unmet(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> Iterator[SpecRefusal]:
    """Sizes of the spec that volumes do not have: the impossible ones, then those under way."""
    small = [
        volume
        for volume in volumes_of(cluster, observed, ranges)
        if is_larger(volume.wanted, volume.has)
    ]
    asked = [volume for volume in small if not is_larger(volume.wanted, volume.asked)]
    refused = {
        volume.pool: volume
        for volume in small
        if volume not in asked and not _may_grow(observed, volume)
    }
    for pool, volume in refused.items():
        class_name = volume.claim["spec"].get("storageClassName") or "(the default one)"
        yield SpecRefusal(
            Reason.NOT_SUPPORTED,
            f"spec.pools[{pool}].storage.size: StorageClass {class_name} does not allow volumes to "
            f"grow (allowVolumeExpansion); write {volume.has}, or add a pool with larger volumes",
        )
    if asked:
        messages = "; ".join(_growth(volume) for volume in asked[:LISTED_MAX])
        more = f"; and {len(asked) - LISTED_MAX} more" if len(asked) > LISTED_MAX else ""
        yield SpecRefusal(Reason.PROGRESSING, f"waiting for volumes to grow: {messages}{more}")


def warnings(
    cluster: ClusterResource,
    observed: ObservedCluster,
    ranges: Sequence[BrokerIdRange],
    now: datetime,
) -> Iterator[str]:
    """The volumes that do not grow, with a remedy; only the first TOLD_MAX."""
    messages = []
    for volume in volumes_of(cluster, observed, ranges):
        if not is_larger(volume.asked, volume.given):
            continue
        back = (
            f"write a size above {volume.given} that its StorageClass can give, in "
            f"spec.pools[{volume.pool}].storage.size"
        )
        asked_at = _asked_at(volume.claim)
        if not is_larger(volume.wanted, volume.given):
            messages.append(
                f"{volume.name} still asks for {volume.asked}: Kubernetes takes that back to a "
                f"size above {volume.given} only, write one if it must not grow"
            )
        elif any(_condition(volume.claim, each) for each in FAILED):
            messages.append(f"{_growth(volume)}; mend that, or {back}")
        elif asked_at is not None and now - asked_at < LATE:
            continue
        elif _condition(volume.claim, WAITS_FOR_POD):
            remedy = f"`logfleet may-i stop ID && kubectl delete pod {volume.pod}`"
            messages.append(
                f"{_growth(volume)}; if it stays so, have its pod start again: {remedy}"
            )
        else:
            messages.append(
                f"{_growth(volume)}; see `kubectl describe pvc {volume.name}` and the driver's "
                f"resizer, or {back}"
            )
    yield from messages[:LISTED_MAX]
    if len(messages) > LISTED_MAX:
        yield f"and {len(messages) - LISTED_MAX} volumes more do not grow"


def _may_grow(observed: ObservedCluster, volume: Volume) -> bool:
    found = storage_class(observed, volume.claim["spec"].get("storageClassName"))
    return found is not None and bool(found.get("allowVolumeExpansion"))


def _growth(volume: Volume) -> str:
    """The claim's state in a sentence that stays the same as long as nothing changes."""
    for kind in (*FAILED, WAITS_FOR_POD, "Resizing"):
        if found := _condition(volume.claim, kind):
            since = f" since {found['lastTransitionTime']}" if "lastTransitionTime" in found else ""
            message = f": {found['message']}" if found.get("message") else ""
            state = f"{kind}{since}{message}"
            break
    else:
        asked_at = _asked_at(volume.claim)
        since = f" at {asked_at:%Y-%m-%dT%H:%M:%SZ}" if asked_at is not None else ""
        state = f"asked for{since}, nothing has begun to grow it"
    return f"{volume.name} has {volume.given} of {volume.asked} ({state})"


def _condition(claim: Manifest, kind: str) -> Manifest | None:
    """The claim's condition of that type, if it is true."""
    for found in claim.get("status", {}).get("conditions", ()):
        if found["type"] == kind and found["status"] == "True":
            return dict(found)
    return None


def _asked_at(claim: Manifest) -> datetime | None:
    """The time when the operator last wrote the claim's requested size; None if that is unknown."""
    times = [
        each["time"]
        for each in claim["metadata"].get("managedFields", ())
        if each.get("manager") == names.FIELD_MANAGER and "time" in each
    ]
    return datetime.fromisoformat(max(times)) if times else None
