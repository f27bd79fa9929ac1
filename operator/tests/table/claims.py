"""Volume claims: how the API server checks requests, and controllers that bind and resize."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from logfleet.resources.quantity import parse_quantity
from logfleet_operator import names
from logfleet_operator.kube import KubeError

Manifest = dict[str, Any]


def bound(claim: Manifest) -> Manifest:
    """The claim once it has a volume, of the size that it asks for."""
    name = claim["metadata"]["name"].removeprefix("data-")
    return {
        **claim,
        "metadata": {**claim["metadata"]},
        "spec": {**claim["spec"], "volumeName": f"volume-of-{name}"},
        "status": {"capacity": {"storage": asked(claim)}},
    }


def resized(claim: Manifest) -> Manifest | None:
    """The claim once its volume has grown to what it asks for; None if it is as large already."""
    is_bound = claim["kind"] == "PersistentVolumeClaim" and "volumeName" in claim["spec"]
    if not is_bound or not is_larger(asked(claim), given(claim)):
        return None
    status = {"capacity": {"storage": asked(claim)}}
    return {**claim, "metadata": {**claim["metadata"]}, "status": status}


def asked(claim: Manifest) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def given(claim: Manifest) -> str:
    return str(claim["status"]["capacity"]["storage"])


def admit(before: Manifest, live: Manifest, objects: Iterable[Manifest], now: datetime) -> None:
    """Note in `live`, which was just changed, when that was.

    Raises KubeError as the API server does (Kubernetes 1.34): ValidatePersistentVolumeClaimUpdate,
    and the admission plugin PersistentVolumeClaimResize.
    """
    sizes = asked(before), asked(live)
    if is_larger(sizes[0], sizes[1]) and not is_larger(sizes[1], given(before)):
        raise KubeError(422, "Invalid", "storage: field can not be less than status.capacity")
    can_grow = any(each.get("allowVolumeExpansion") for each in objects)
    if is_larger(sizes[1], sizes[0]) and not can_grow:
        raise KubeError(403, "Forbidden", "the storageclass must support resize")
    if live != before:
        manager = {"manager": names.FIELD_MANAGER, "time": now.isoformat()}
        live["metadata"]["managedFields"] = [manager]


def is_larger(one: str, other: str) -> bool:
    return (parse_quantity(one) or 0) > (parse_quantity(other) or 0)
