"""What the operator does to objects is what its chart's rules let it do."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from logfleet_operator.kube import KINDS

from .operation import Operation, at_rest, cluster, pool, rebalance, topic
from .world import World

pytestmark = pytest.mark.asyncio
NAMES = Path(__file__).resolve().parents[3] / "charts/operator/templates/_names.tpl"
VERBS = {
    "get": {"get"},
    "list": {"list"},
    "create": {"create"},
    "apply": {"create", "patch"},
    "status": {"patch"},
    "delete": {"delete"},
    "evict": {"create"},
}
PARTS = {"status": "/status", "evict": "/eviction"}
SNAPSHOTS = {"managed": {"replicas": 3, "snapshots": {"schedule": "0 * * * *", "claimName": "b"}}}


def allowed() -> set[tuple[str, str]]:
    """(verb, resource) of `operator.rules`, which hold in each namespace with Clusters."""
    match = re.search(r'define "operator.rules" -}}\n(.*?){{- end }}', NAMES.read_text(), re.DOTALL)
    assert match is not None
    rules: list[dict[str, Any]] = yaml.safe_load(match[1])
    return {(verb, name) for rule in rules for name in rule["resources"] for verb in rule["verbs"]}


def done(world: World) -> Iterator[tuple[str, str]]:
    for call in world.calls:
        what, _, rest = call.partition(" ")
        kind = KINDS.get(rest.partition(" ")[0])
        if what in VERBS and kind is not None and kind.namespaced:
            resource = kind.plural + PARTS.get(what, "")
            # Claims are the StatefulSets' to make: one that is not there is to stay away.
            not_ours = {"create"} if kind.plural == "persistentvolumeclaims" else set[str]()
            yield from ((verb, resource) for verb in VERBS[what] - not_ours)


async def some_life() -> World:
    """Brokers, a pool, a listener, snapshots and a zone by mistake come and go, and keys change."""
    extra = {**pool()["pools"][0], "name": "extra"}
    world, operation = await at_rest(metadata=SNAPSHOTS)
    world.put(topic())
    world.put(rebalance(ttlSecondsAfterFinished=0, approval="Auto"))
    listeners = cluster()["spec"]["listeners"][:1]
    world.has_node = lambda name: "typo" not in name
    for spec in (
        {"pools": [*pool(replicas=6)["pools"], extra]},
        {"zones": ["a", "b", "c", "typo"], **pool(replicas=4)},
        {"config": {"num.partitions": 4}, "listeners": listeners},
        {"config": {"num.partitions": 5}, "listeners": listeners, "image": "logfleet/broker:2"},
    ):
        world.put(cluster(**spec, scaling={"volumes": "Delete"}))
        await operation.until_at_rest()
    world.empty_members = {"fleet-etcd-0"}
    world.remove("Pod", "fleet-etcd-0")
    await Operation(world).until_at_rest()
    operation.delete_topic("flights")
    await operation.until_at_rest()
    return world


async def test_the_charts_rules_allow_whatever_the_operator_does() -> None:
    world = await some_life()
    found = {*done(world)}
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    resources = ("configmaps", "cronjobs", "persistentvolumeclaims", "services", "statefulsets")
    assert {("delete", each) for each in resources} <= found
    assert found <= allowed()
