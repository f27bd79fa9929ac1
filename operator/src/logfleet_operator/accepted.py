"""The spec that the operator acts on: the live one, else the one accepted last. PURE.

The last accepted spec counts while the live one is refused.

A spec that passes `plan.refusal_of` is written into the record before the operator acts on it, so
an operator that starts later knows it too. A refused spec changes nothing and stops nothing: etcd
members are still repaired and deleted objects are created again, by the last accepted spec.
"""

from dataclasses import dataclass, replace

import msgspec
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.plan import Reason, SpecRefusal

from logfleet_operator import names
from logfleet_operator.clusters.broker_ids import ACCEPTED_KEY
from logfleet_operator.clusters.observed import ObservedCluster, controlled_by_another
from logfleet_operator.clusters.plan import refusal_of
from logfleet_operator.conditions import READY, condition_of
from logfleet_operator.documents import read_cluster
from logfleet_operator.names import Manifest


@dataclass(frozen=True, slots=True)
class EffectiveSpec:
    """The Cluster to act on, and why that is not the live spec.

    cluster: the resource with the spec to act on. refusal: why the live spec is not used, None if
    it is.
    acts: False if no spec was ever accepted, so that there is nothing to do.
    """

    cluster: ClusterResource
    refusal: SpecRefusal | None = None
    acts: bool = True


def last_accepted(live: Manifest, record: Manifest | None) -> ClusterResource | None:
    """The Cluster with the spec accepted last, but today's `paused`; None if no record holds one.

    live: the Cluster. record: its ConfigMap; the record of an earlier Cluster of this name does not
    count.
    """
    if record is None or controlled_by_another(record, str(live["metadata"]["uid"])):
        return None
    try:
        spec = msgspec.json.decode((record.get("data") or {}).get(ACCEPTED_KEY, ""), type=dict)
        now = {**spec, "paused": live["spec"].get("paused") is True}
        return read_cluster({**live, "spec": now})
    except (msgspec.DecodeError, InvalidResourceError):
        return None  # written by an operator that recorded no spec, or read specs differently


def checked_against_objects(
    effective: EffectiveSpec, live: Manifest, observed: ObservedCluster
) -> EffectiveSpec:
    """Check the spec against what exists, too. Raises ObjectConflict."""
    if effective.refusal is not None or effective.cluster.spec.paused:
        return effective
    record = observed.get("ConfigMap", names.record_map(effective.cluster.metadata.name))
    before = last_accepted(live, record)
    refusal = refusal_of(effective.cluster, observed, before)
    if refusal is None:
        return effective
    if before is None and not _was_carried_out(live, record):
        return replace(effective, refusal=refusal, acts=False)
    return EffectiveSpec(before or effective.cluster, refusal)


def _was_carried_out(live: Manifest, record: Manifest | None) -> bool:
    """Whether an older operator, which did not record what it accepted, carried out this very spec.

    Older operators refused less: their fleets run, and are managed as they are.
    """
    if record is None or ACCEPTED_KEY in (record.get("data") or {}):
        return False
    if live.get("status", {}).get("observedGeneration") != live["metadata"].get("generation"):
        return False
    ready = condition_of(live, READY) or {}
    return ready.get("reason") in {Reason.READY, Reason.PROGRESSING}
