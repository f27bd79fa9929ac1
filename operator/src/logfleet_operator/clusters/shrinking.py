"""Removes brokers that are no longer wanted: drains, stops, then unregisters them. PURE.

The drain state of a broker is stored on its volume claim, so that another operator goes on from
there, and the broker can be kept after all at any moment:

1. `draining`: it gets no new replicas, and the ones it has move to others while it serves;
2. `drained`: it has none left and counts as one that never ran: its pod is removed
   (`broker_id_ranges.allocate`);
3. `forgotten`: its pod is gone and its id is unregistered. Then its claim is deleted, if volumes
   are to be deleted; otherwise it stays, for a broker that takes this place again.

A marked broker that is wanted again gets replicas again, and its mark is removed.

Which brokers have left is read from the claims alone: once the brokers of a pool or zone that the
spec no longer names are drained, the ranges no longer contain it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from logfleet.resources.cluster import ClusterResource, set_name

from logfleet_operator import names
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange
from logfleet_operator.clusters.broker_ids import ordinal_of
from logfleet_operator.clusters.observed import ObservedCluster
from logfleet_operator.clusters.steps import (
    Action,
    ClusterPlan,
    Delete,
    MarkClaim,
    Stage,
    Uncordon,
    UnregisterBroker,
)
from logfleet_operator.names import Manifest


class State(StrEnum):
    DRAINING = "draining"
    DRAINED = "drained"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Place:
    """A broker's id, pod and volume claim, if there is one. state: "" for an unmarked claim."""

    id: int
    pod: str
    claim: Manifest | None
    is_wanted: bool

    @property
    def state(self) -> str:
        return state_of(self.claim) if self.claim is not None else ""


def state_of(claim: Manifest) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(names.DRAIN_ANNOTATION, ""))


def without_drained(
    cluster: str, observed: ObservedCluster, given: Sequence[BrokerIdRange]
) -> list[BrokerIdRange]:
    """The ranges as if the drained brokers at their ends had never run."""
    claims = _claims(observed)
    found = []
    for known in given:
        ran = known.ran
        while ran and _is_drained(claims.get(_claim_name(cluster, known, ran - 1))):
            ran -= 1
        found.append(msgspec.structs.replace(known, ran=ran))
    return found


def leaving_ids(ranges: Sequence[BrokerIdRange]) -> frozenset[int]:
    return frozenset(
        given.base + ordinal for given in ranges for ordinal in range(given.staying, given.replicas)
    )


def marked_ids(cluster: ClusterResource, observed: ObservedCluster) -> frozenset[int]:
    """Ids of the brokers whose claims carry any drain mark."""
    marked = (claim for claim in observed.volumes if state_of(claim))
    ids = (_id_of(claim, cluster.metadata.name) for claim in marked)
    return frozenset(each for each in ids if each is not None)


def plan_shrinking(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> ClusterPlan | None:
    """The next of the steps above; None if no broker leaves or has left.

    A plan without actions says what is waited for.
    """
    places = list(_places(cluster, observed, ranges))
    back = [
        each for each in places if each.is_wanted and each.state and _is_ready(observed, each.pod)
    ]
    if back:
        ids = tuple(each.id for each in back)
        return _step(f"brokers {_ids(ids)} are wanted again", Uncordon(ids, _names(back)))
    leaving = [each for each in places if each.id in leaving_ids(ranges)]
    unmarked = [each for each in leaving if each.claim is not None and not each.state]
    if unmarked:
        marks = [MarkClaim(name, State.DRAINING) for name in _names(unmarked)]
        return _step(f"brokers {_ids([each.id for each in unmarked])} are to leave", *marks)
    replica_counts = observed.fleet.replica_counts if observed.fleet is not None else None
    empty = [
        each
        for each in leaving
        if each.state == State.DRAINING
        and replica_counts is not None
        and not replica_counts.get(each.id, 0)
    ]
    if empty:
        marks = [MarkClaim(name, State.DRAINED) for name in _names(empty)]
        return _step(f"brokers {_ids([each.id for each in empty])} are empty", *marks)
    gone = [each for each in places if not each.is_wanted and _has_gone(observed, each)]
    if gone:
        forgets = [
            UnregisterBroker(each.id, name) for each, name in zip(gone, _names(gone), strict=True)
        ]
        return _step(f"brokers {_ids([each.id for each in gone])} have gone", *forgets)
    left = [each for each in places if not each.is_wanted and each.state == State.FORGOTTEN]
    if cluster.spec.scaling.volumes == "Delete" and (deletes := list(_deletes(left))):
        return _step("removing volumes of brokers that have gone", *deletes)
    if not leaving:
        return None
    progress = observed.fleet.progress if observed.fleet is not None else "no broker answers"
    who = _ids([each.id for each in leaving])
    return ClusterPlan(f"draining brokers {who}: {progress}", stage=Stage.DRAINING)


def _deletes(places: Sequence[Place]) -> Iterator[Delete]:
    """Delete their claims, except those being deleted: a finalizer may keep one for ever."""
    for each in places:
        if each.claim is not None and "deletionTimestamp" not in each.claim["metadata"]:
            metadata = each.claim["metadata"]
            yield Delete("PersistentVolumeClaim", str(metadata["name"]), str(metadata["uid"]))


def _has_gone(observed: ObservedCluster, place: Place) -> bool:
    is_there = any(pod.name == place.pod for pod in observed.pods)
    return place.state == State.DRAINED and not is_there and observed.fleet is not None


def _places(
    cluster: ClusterResource, observed: ObservedCluster, ranges: Sequence[BrokerIdRange]
) -> Iterator[Place]:
    """All brokers that are wanted or leave, then the others with marked claims; each by id."""
    claims, name = _claims(observed), cluster.metadata.name
    for given in ranges:
        stateful_set = set_name(name, given.pool, given.zone)
        for ordinal in range(given.replicas):
            yield Place(
                given.base + ordinal,
                f"{stateful_set}-{ordinal}",
                claims.pop(_claim_name(name, given, ordinal), None),
                is_wanted=ordinal < given.staying,
            )
    left = [(_id_of(claim, name), claim) for claim in claims.values() if state_of(claim)]
    known = [(broker_id, claim) for broker_id, claim in left if broker_id is not None]
    for broker_id, claim in sorted(known, key=lambda entry: entry[0]):
        pod = str(claim["metadata"]["name"]).removeprefix("data-")
        yield Place(broker_id, pod, claim, is_wanted=False)


def _id_of(claim: Manifest, cluster: str) -> int | None:
    """The id of the broker whose claim this is, by its labels; None for other claims."""
    ordinal = ordinal_of(claim, cluster)
    base = claim["metadata"]["labels"].get(names.BASE_LABEL, "")
    return int(base) + ordinal if ordinal is not None and base.isdecimal() else None


def _claims(observed: ObservedCluster) -> dict[str, Manifest]:
    return {str(live["metadata"]["name"]): live for live in observed.volumes}


def _claim_name(cluster: str, given: BrokerIdRange, ordinal: int) -> str:
    return f"data-{set_name(cluster, given.pool, given.zone)}-{ordinal}"


def _is_drained(claim: Manifest | None) -> bool:
    return claim is not None and state_of(claim) in {State.DRAINED, State.FORGOTTEN}


def _is_ready(observed: ObservedCluster, pod: str) -> bool:
    return any(each.name == pod and each.ready for each in observed.pods)


def _names(places: Sequence[Place]) -> tuple[str, ...]:
    return tuple(str(each.claim["metadata"]["name"]) for each in places if each.claim is not None)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _step(why: str, *actions: Action) -> ClusterPlan:
    return ClusterPlan(why, actions, stage=Stage.DRAINING)
