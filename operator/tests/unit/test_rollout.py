"""Which pods go next: letters for pods, in the order of their ordinals.

r ready, u runs and is not ready, s cannot run, d is being deleted, - is missing; capital letters
are up to date.
"""

from dataclasses import replace

import pytest
from logfleet_operator.clusters.observed import ObservedCluster, Pod, StopPermission
from logfleet_operator.clusters.rollout import DeletePod, EvictPod, plan_rollout
from logfleet_operator.names import BROKER, ETCD, ZONE_LABEL


def observed(component: str, states: str) -> ObservedCluster:
    live = {
        "metadata": {"generation": 1},
        "spec": {"replicas": len(states)},
        "status": {"observedGeneration": 1, "updateRevision": "new"},
    }
    pods = [
        Pod(
            name=f"x-{ordinal}",
            uid="1",
            component=component,
            revision="new" if state.isupper() else "old",
            ready=state in "rRdDfF",
            deleting=state in "dD",
            stuck="CrashLoopBackOff" if state in "sS" else "",
            node="",
            host_ip="",
            fresh=state in "fF",
        )
        for ordinal, state in enumerate(states)
        if state != "-"
    ]
    leave = StopPermission(frozenset(pod.name for pod in pods))
    return ObservedCluster({("StatefulSet", "x"): live}, {}, tuple(pods), (), (), leave=leave)


def on_nodes(
    nodes: str, *, cordoned: str, zone: str = "a", allowed: bool = True, volumes_on: str = "n"
) -> ObservedCluster:
    """Ready brokers of one zone, each on a node; `-` for one that has none."""
    seen = observed(BROKER, "R" * len(nodes))
    (live,) = seen.objects.values()
    live["metadata"]["labels"] = {ZONE_LABEL: zone}
    pods = tuple(
        replace(pod, node=node.strip("-"), ready=node != "-")
        for pod, node in zip(seen.pods, nodes, strict=True)
    )
    leave = (
        seen.leave
        if allowed
        else StopPermission(objection="t-0: no other in-sync replica could lead")
    )
    volumes = [
        {
            "metadata": {
                "name": f"data-{pod.name}",
                "annotations": {"volume.kubernetes.io/selected-node": volumes_on},
            },
            "spec": {"volumeName": f"pv-{pod.name}"} if volumes_on else {},
        }
        for pod in pods
    ]
    return replace(
        seen, pods=pods, cordoned=frozenset(cordoned), leave=leave, volumes=tuple(volumes)
    )


def test_what_is_left_on_a_node_that_is_drained_goes_with_what_has_left_it():
    """A node of two brokers with local volumes: the budget would never let the second one go."""
    rollout = plan_rollout(on_nodes("-n", cordoned="n"), BROKER, ["x"])
    assert rollout is not None
    assert rollout.actions == (DeletePod("x-1", "1"),)
    assert rollout.why == "emptying n, which is drained: x-1"


def with_going_claims(seen: ObservedCluster) -> ObservedCluster:
    for volume in seen.volumes:
        volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return seen


@pytest.mark.parametrize(
    "seen",
    [
        with_going_claims(on_nodes("-n", cordoned="n")),
        on_nodes("nn", cordoned="n"),  # cordoned, not drained
        on_nodes("-n", cordoned=""),  # there is no room for the first, and nobody drains
        on_nodes("-n", cordoned="n", zone=""),
        on_nodes("-n", cordoned="n", allowed=False),
        on_nodes("-n", cordoned="n", volumes_on=""),  # the first is new, and finds no room
        on_nodes("-n", cordoned="n", volumes_on="m"),  # it waits for another node
    ],
)
def test_else_nothing_goes(seen):
    rollout = plan_rollout(seen, BROKER, ["x"])
    assert rollout is None or rollout.actions == ()


@pytest.mark.parametrize(
    "component, states, evicted, deleted",
    [
        (BROKER, "rrr", [0], []),
        (BROKER, "Rrr", [1], []),
        # one that has just come back may not be reached by everybody; of one that is out of date
        # that is no matter
        (BROKER, "Frr", [], []),
        (BROKER, "Rfr", [1], []),
        # the one that serves nobody first
        (BROKER, "rur", [1], []),
        (BROKER, "RuR", [1], []),
        # the budget refuses to evict one that is not ready beside others, or alone
        (BROKER, "uuu", [], [0]),
        (BROKER, "ruu", [], [1]),
        (BROKER, "Ruu", [], [1]),
        (BROKER, "u", [], [0]),
        # what is up to date comes back first
        (BROKER, "Uuu", [], []),
        (BROKER, "uuU", [], []),
        (BROKER, "Urr", [], []),
        (BROKER, "Srr", [], []),
        (BROKER, "-uu", [], []),
        (BROKER, "-rr", [], []),
        (BROKER, "duu", [], []),
        (BROKER, "Drr", [], []),
        # what cannot run goes at once, together
        (BROKER, "sss", [], [0, 1, 2]),
        (BROKER, "srs", [], [0, 2]),
        (BROKER, "suU", [], [0]),
        (BROKER, "RRR", [], []),
        # one new member alone never is ready: two of three make a quorum
        (ETCD, "uuu", [], [0]),
        (ETCD, "Uuu", [], [1]),
        (ETCD, "Uur", [], []),
        (ETCD, "-uu", [], []),
        (ETCD, "Duu", [], []),
    ],
)
def test_what_goes_next(
    component: str, states: str, evicted: list[int], deleted: list[int]
) -> None:
    rollout = plan_rollout(observed(component, states), component, ["x"])
    actions = rollout.actions if rollout is not None else ()
    expected: list[EvictPod | DeletePod] = [EvictPod(f"x-{ordinal}", "1") for ordinal in evicted]
    expected += [DeletePod(f"x-{ordinal}", "1") for ordinal in deleted]
    assert list(actions) == expected
