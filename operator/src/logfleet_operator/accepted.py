"""The spec by which a Cluster is looked after: as it is written or, where that is refused, as it was accepted last. PURE.

A spec that passes `plan.refusal_of` is written into the record before anything is done for it, so
an operator that begins later knows it, too. What is refused changes nothing, and stops nothing:
members of etcd are healed, and objects that somebody deleted come back, by the spec before.
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
class Wish:
    """cluster: by which it is looked after. refusal: why that is not the spec that there is.

    acts: False if nothing was ever accepted, so that there is nothing to look after.
    """

    cluster: ClusterResource
    refusal: SpecRefusal | None = None
    acts: bool = True


def last_accepted(live: Manifest, record: Manifest | None) -> ClusterResource | None:
    """The Cluster as it was accepted last, but `paused` as it is now; None if no record tells it.

    live: the Cluster. record: its ConfigMap, that of a former Cluster counts for nothing.
    """
    if record is None or controlled_by_another(record, str(live["metadata"]["uid"])):
        return None
    try:
        spec = msgspec.json.decode((record.get("data") or {}).get(ACCEPTED_KEY, ""), type=dict)
        now = {**spec, "paused": live["spec"].get("paused") is True}
        return read_cluster({**live, "spec": now})
    except (msgspec.DecodeError, InvalidResourceError):
        return None  # of an operator that wrote none, or read specs otherwise


def judged(wish: Wish, live: Manifest, observed: ObservedCluster) -> Wish:
    """Also by what exists. Raises ObjectConflict."""
    if wish.refusal is not None or wish.cluster.spec.paused:
        return wish
    record = observed.get("ConfigMap", names.record_map(wish.cluster.metadata.name))
    before = last_accepted(live, record)
    refusal = refusal_of(wish.cluster, observed, before)
    if refusal is None:
        return wish
    if before is None and not _was_carried_out(live, record):
        return replace(wish, refusal=refusal, acts=False)
    return Wish(before or wish.cluster, refusal)


def _was_carried_out(live: Manifest, record: Manifest | None) -> bool:
    """Whether an operator of before, which did not record what it accepted, carried out this very spec.

    It refused less: its fleets run, and are looked after as they are.
    """
    if record is None or ACCEPTED_KEY in (record.get("data") or {}):
        return False
    if live.get("status", {}).get("observedGeneration") != live["metadata"].get("generation"):
        return False
    ready = condition_of(live, READY) or {}
    return ready.get("reason") in {Reason.READY, Reason.PROGRESSING}
