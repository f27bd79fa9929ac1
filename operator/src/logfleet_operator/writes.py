"""Rules that every reconciler follows when it writes. SHELL."""

from datetime import UTC, datetime
from typing import Any

from logfleet.resources.document import Metadata

from logfleet_operator.clusters.observed import (
    ObjectConflict,
    controlled_by_another,
    not_of_the_cluster,
)
from logfleet_operator.kube import Kube, KubeError
from logfleet_operator.names import Manifest


async def refuse_foreign(kube: Kube, cluster: Metadata, manifest: Manifest) -> None:
    """Raise ObjectConflict if the object exists but is not the Cluster's.

    An object without our label may be somebody else's: it is not taken over. cluster: the owner.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    live = await kube.get(kind, cluster.namespace, name)
    if live is None:
        return
    owners = live["metadata"].get("ownerReferences", ())
    ours = any(owner["uid"] == cluster.uid for owner in owners)
    if not ours or controlled_by_another(live, cluster.uid):
        raise ObjectConflict(not_of_the_cluster(kind, name))


async def write_status(kube: Kube, live: Manifest, status: dict[str, Any]) -> None:
    """Write the status of the object that was read, if it still exists.

    Raises KubeConflict if it was written since, or replaced by another object of its name: the
    status may be wrong for it. The resourceVersion shows this; the API server ignores a custom
    resource's uid here (apiextensions-apiserver: statusStrategy).
    """
    manifest = {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {
            key: live["metadata"][key] for key in ("name", "namespace", "resourceVersion")
        },
        "status": status,
    }
    try:
        await kube.apply_status(manifest)
    except KubeError as error:
        if error.status != 404:
            raise


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
