"""A Cluster's record, and the claims on broker ids that its objects make. PURE.

These are the record, StatefulSets with their pods, and volume claims.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec
from logfleet.resources.cluster import ClusterResource, set_name

from logfleet_operator import names
from logfleet_operator.clusters import etcd
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange, RangeClaim
from logfleet_operator.clusters.observed import ObjectConflict, ObservedCluster, is_bound
from logfleet_operator.names import Manifest

# Key of the record: the spec that was accepted last, as JSON.
ACCEPTED_KEY: Final = "accepted"


class _RecordedRange(msgspec.Struct, frozen=True):
    """A range in the record. ran: None if written by an older operator, which did not record it."""

    pool: str
    zone: str
    base: int
    replicas: int
    ran: int | None = None


def record(
    cluster: ClusterResource, ranges: Sequence[BrokerIdRange], etcd_state: str, admitted: str
) -> Manifest:
    """The record: assigned broker ids, which may have run, etcd's state, and the accepted spec.

    etcd_state: tells whether etcd may still bootstrap. admitted: see `etcd.ADMITTED_KEY`.
    """
    name = cluster.metadata.name
    listed = [msgspec.structs.asdict(given) for given in ranges]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.record_map(name), "labels": names.labels(name, names.RECORD)},
        "data": {
            "ranges": json.dumps(listed),
            ACCEPTED_KEY: msgspec.json.encode(cluster.spec, order="sorted").decode(),
            "etcd": etcd_state,
            etcd.INITIAL_STATE_KEY: "new" if etcd_state == etcd.BOOTSTRAPPING else "existing",
            etcd.ADMITTED_KEY: admitted,
        },
    }


def recorded(observed: ObservedCluster, cluster: str) -> tuple[list[BrokerIdRange], str] | None:
    """The record's broker ids and state of etcd; None if there is no record.

    Raises ObjectConflict if the record is malformed: its content must not be guessed.
    """
    name = names.record_map(cluster)
    live = observed.get("ConfigMap", name)
    if live is None:
        return None
    data = live.get("data") or {}
    state = data.get("etcd", "")
    if state not in etcd.STATES:
        raise _damaged_record(name, f"etcd: {state!r}")
    try:
        found = msgspec.json.decode(data.get("ranges", ""), type=list[_RecordedRange])
    except msgspec.DecodeError as error:
        raise _damaged_record(name, f"ranges: {error}") from error
    return [
        BrokerIdRange(
            each.pool,
            each.zone,
            each.base,
            each.replicas,
            each.replicas if each.ran is None else each.ran,
        )
        for each in found
    ], state


def _damaged_record(name: str, why: str) -> ObjectConflict:
    return ObjectConflict(
        f"ConfigMap {name} is no record of broker ids ({why}): correct it, or remove it, then it "
        "is created again from the StatefulSets and volume claims"
    )


def claims_of(observed: ObservedCluster, cluster: str) -> list[RangeClaim]:
    """The claims of the record, StatefulSets and volume claims, in this order.

    Raises ObjectConflict if one of them is malformed.
    """
    record = recorded(observed, cluster)
    source = f"ConfigMap {names.record_map(cluster)}"
    claims = [] if record is None else [RangeClaim(source, given) for given in record[0]]
    for (kind, name), live in sorted(observed.objects.items()):
        component = live["metadata"]["labels"].get(names.COMPONENT_LABEL)
        if kind == "StatefulSet" and component == names.BROKER:
            ran = _ordinals_on_nodes(observed, name)
            claims += _claim(f"StatefulSet {name}", live, live["spec"]["replicas"], ran)
    for live in sorted(observed.volumes, key=lambda volume: str(volume["metadata"]["name"])):
        ordinal = ordinal_of(live, cluster)
        if ordinal is not None:
            source = f"PersistentVolumeClaim {live['metadata']['name']}"
            ran = ordinal + 1 if _may_hold_data(live, observed, recorded=record is not None) else 0
            claims += _claim(source, live, ran, ran)
    return claims


def _ordinals_on_nodes(observed: ObservedCluster, stateful_set: str) -> int:
    """The number of ordinals, from 0 on, up to the last one whose pod has a node."""
    ordinals = [
        int(ordinal) + 1
        for pod in observed.of_component(names.BROKER)
        for prefix, _, ordinal in [pod.name.rpartition("-")]
        if pod.node and prefix == stateful_set and ordinal.isdecimal()
    ]
    return max(ordinals, default=0)


def _may_hold_data(volume: Manifest, observed: ObservedCluster, *, recorded: bool) -> bool:
    """True for a claim with a volume, unless a volume proves nothing and there is a record.

    A storage class with immediate binding gives a volume also to a pod that never gets a node.
    """
    if not is_bound(volume):
        return False
    class_name = volume.get("spec", {}).get("storageClassName")
    at_once = any(
        found["metadata"]["name"] == class_name and found.get("volumeBindingMode") == "Immediate"
        for found in observed.storage_classes
    )
    return not (recorded and at_once)


def ordinal_of(volume: Manifest, cluster: str) -> int | None:
    """The ordinal of the claim's broker; None for other claims (a copy has all its labels)."""
    labels = volume["metadata"]["labels"]
    pool, zone = labels.get(names.POOL_LABEL), labels.get(names.ZONE_LABEL)
    if pool is None or zone is None:
        return None
    prefix, _, ordinal = volume["metadata"]["name"].rpartition("-")
    is_number = re.fullmatch("0|[1-9][0-9]*", ordinal) is not None
    return int(ordinal) if is_number and prefix == f"data-{set_name(cluster, pool, zone)}" else None


def _claim(source: str, live: Manifest, replicas: int, ran: int) -> list[RangeClaim]:
    labels = live["metadata"]["labels"]
    if not {names.BASE_LABEL, names.POOL_LABEL, names.ZONE_LABEL} <= labels.keys():
        return []
    base = labels[names.BASE_LABEL]
    if not base.isdecimal():
        raise ObjectConflict(
            f"{source}: label {names.BASE_LABEL} is {base!r}, no broker id; correct it"
        )
    place = labels[names.POOL_LABEL], labels[names.ZONE_LABEL]
    return [RangeClaim(source, BrokerIdRange(*place, int(base), replicas, ran))]
