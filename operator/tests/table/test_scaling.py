"""Fewer brokers are drained and unregistered; more get their share; both can be undone."""

from typing import Any

import pytest
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet_operator import names

from .disturbances import DISTURBANCES
from .operation import POOL, Operation, at_rest, cluster, pool, properties_of, told, why
from .world import Death, World

pytestmark = pytest.mark.asyncio

READY = ("True", "Ready")
SIX = (0, 1, 1000, 1001, 2000, 2001)


def pods(world: World) -> list[str]:
    return [name for name in world.named("Pod") if "etcd" not in name]


def marks(world: World) -> dict[str, str]:
    found = {}
    for name in world.named("PersistentVolumeClaim"):
        annotations = world.one("PersistentVolumeClaim", name)["metadata"].get("annotations", {})
        if names.DRAIN_ANNOTATION in annotations:
            found[name] = annotations[names.DRAIN_ANNOTATION]
    return found


def progressing(world: World) -> str:
    for condition in world.one("Cluster", "fleet")["status"]["conditions"]:
        if condition["type"] == "Progressing":
            return str(condition["reason"])
    return ""


async def six(**spec: Any) -> tuple[World, Operation]:
    world, operation = await at_rest(**pool(replicas=6), **spec)
    world.replicas.counts = dict.fromkeys(SIX, 10)
    return world, operation


async def test_fewer_brokers_are_emptied_before_their_pods_go_and_then_forgotten() -> None:
    world, operation = await six()
    world.put(cluster(**pool(replicas=3)))
    said = set()
    while any(world.replicas.counts.get(each) for each in (1, 1001, 2001)):
        assert len(pods(world)) == 6, "nothing is stopped that has something"
        await operation.round()
        said.add((progressing(world), why(world).partition(";")[0]))
    assert world.replicas.cordoned == {1, 1001, 2001}
    told = "draining brokers 1, 1001, 2001: 6 partitions move, 6 MiB are left of them"
    assert ("DrainingBrokers", told) in said
    await operation.until_at_rest()
    assert pods(world) == [f"fleet-main-{zone}-0" for zone in "abc"]
    assert world.ready("Cluster", "fleet") == READY
    assert sorted(world.replicas.forgotten) == [1, 1001, 2001]
    assert set(marks(world).values()) == {"forgotten"}, "volumes stay, if nothing else is said"
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 2
    assert world.replicas.throttles == {50 << 20}


async def test_volumes_go_as_well_if_that_is_said() -> None:
    world, operation = await six(scaling={"volumes": "Delete"})
    world.put(cluster(**pool(replicas=3), scaling={"volumes": "Delete"}))
    await operation.until_at_rest()
    claims = [name for name in world.named("PersistentVolumeClaim") if "etcd" not in name]
    assert claims == [f"data-fleet-main-{zone}-0" for zone in "abc"]
    assert world.ready("Cluster", "fleet") == READY


async def test_what_cannot_be_moved_is_told_and_no_pod_goes() -> None:
    world, operation = await six()
    world.replicas.fewest = 4
    world.put(cluster(**pool(replicas=3)))
    await operation.until_at_rest()
    assert len(pods(world)) == 6
    assert "flights-0 stays on broker 2: no other may take it" in why(world)
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")


async def test_a_number_that_is_written_back_takes_brokers_back_at_once() -> None:
    world, operation = await six()
    world.put(cluster(**pool(replicas=3)))
    for _ in range(3):
        await operation.round()
    assert world.replicas.counts[1] < 10
    assert set(marks(world).values()) == {"draining"}
    world.put(cluster(**pool(replicas=6)))
    await operation.until_at_rest()
    assert (world.replicas.cordoned, marks(world)) == (set(), {})
    assert len(pods(world)) == 6
    assert max(world.replicas.counts.values()) - min(world.replicas.counts.values()) <= 1
    assert world.ready("Cluster", "fleet") == READY


async def test_brokers_that_went_come_again_on_their_volumes() -> None:
    world, operation = await six()
    world.put(cluster(**pool(replicas=3)))
    await operation.until_at_rest()
    world.put(cluster(**pool(replicas=6)))
    world.replicas.counts |= dict.fromkeys((1, 1001, 2001), 0)
    await operation.until_at_rest()
    assert (world.replicas.cordoned, marks(world), len(pods(world))) == (set(), {}, 6)
    assert set(world.replicas.counts.values()) == {10}


async def test_new_brokers_get_their_share_while_the_cluster_is_ready() -> None:
    world, operation = await at_rest()
    world.replicas.counts = {0: 20, 1000: 20, 2000: 20, **dict.fromkeys((1, 1001, 2001), 0)}
    world.put(cluster(**pool(replicas=6)))
    while progressing(world) != "SpreadingReplicas":
        await operation.round()
    assert world.ready("Cluster", "fleet") == READY
    assert "they get their share: 2 partitions move, 2 MiB are left" in why(world)
    await Operation(world).until_at_rest()
    assert set(world.replicas.counts.values()) == {10}
    assert world.one("Cluster", "fleet")["status"]["spreading"] is False


async def test_new_brokers_stay_empty_if_that_is_said() -> None:
    world, operation = await at_rest()
    world.replicas.counts = {0: 20, 1000: 20, 2000: 20, **dict.fromkeys((1, 1001, 2001), 0)}
    world.put(cluster(**pool(replicas=6), scaling={"onScaleUp": "None"}))
    await operation.until_at_rest()
    assert world.replicas.counts[1] == 0
    assert len(pods(world)) == 6


EXTRA = {**POOL, "name": "extra"}
OUTSIDE = {"metadata": {"endpoints": ["etcd.data.svc:2379"]}}
"""An etcd which is in no zone of ours."""


@pytest.mark.parametrize("volumes", ["Retain", "Delete"])
@pytest.mark.parametrize(
    "before, after, gone",
    [
        ({"pools": [POOL, EXTRA]}, {}, {f"data-fleet-extra-{zone}-0" for zone in "abc"}),
        ({}, {"zones": ["a", "b"], **pool(replicas=2)}, {"data-fleet-main-c-0"}),
    ],
    ids=["pool", "zone"],
)
async def test_a_pool_and_a_zone_that_are_taken_away_are_forgotten_and_their_volumes_go_by_policy(
    before: dict[str, Any], after: dict[str, Any], gone: set[str], volumes: str
) -> None:
    """Then nobody stands in the way of a higher feature level."""
    rest = {**OUTSIDE, "scaling": {"volumes": volumes}}
    world, operation = await at_rest(**before, **rest)
    brokers = world.one("Cluster", "fleet")["status"]["brokers"]
    world.replicas.counts = dict.fromkeys([each["id"] for each in brokers], 4)
    world.put(cluster(**after, **rest))
    await operation.until_at_rest()
    assert not {f"data-{name}" for name in world.named("Pod")} & gone
    assert not {f"data-{name}-0" for name in world.named("StatefulSet")} & gone
    left = {each["id"] for each in brokers if f"data-{each['pod']}" in gone}
    assert set(world.replicas.forgotten) == left
    assert marks(world) == ({} if volumes == "Delete" else dict.fromkeys(gone, "forgotten"))
    assert gone.isdisjoint(world.named("PersistentVolumeClaim")) == (volumes == "Delete")
    world.replicas.feature_level = FeatureLevel(2, 3)
    world.put(cluster(**after, **rest, featureLevel=3))
    await operation.until_at_rest()
    assert world.replicas.raises == [3]
    assert world.ready("Cluster", "fleet") == READY


async def test_a_pool_that_was_taken_away_comes_again_on_its_volumes_and_under_its_ids() -> None:
    world, operation = await at_rest(pools=[POOL, EXTRA], **OUTSIDE)
    ids = [each["id"] for each in world.one("Cluster", "fleet")["status"]["brokers"]]
    world.replicas.counts = dict.fromkeys(ids, 4)
    world.put(cluster(**OUTSIDE))
    await operation.until_at_rest()
    world.put(cluster(pools=[POOL, EXTRA], **OUTSIDE))
    world.replicas.counts |= {each: 0 for each in ids if each not in world.replicas.counts}
    await operation.until_at_rest()
    assert [each["id"] for each in world.one("Cluster", "fleet")["status"]["brokers"]] == ids
    assert (world.replicas.cordoned, marks(world)) == (set(), {})
    assert set(world.replicas.counts.values()) == {4}


async def test_a_broker_whose_volume_claim_was_deleted_by_hand_is_forgotten_as_well() -> None:
    """The claim goes with the pod, and with it the mark by which the broker was to be forgotten."""
    world, operation = await six()
    world.put(cluster(**pool(replicas=3)))
    while "fleet-main-c-1" in pods(world):
        await operation.round()
    world.remove("PersistentVolumeClaim", "data-fleet-main-c-1")
    assert 2001 not in world.replicas.forgotten
    await operation.until_at_rest()
    assert sorted(world.replicas.forgotten) == [1, 1001, 2001]
    assert ("Normal", "BrokerForgotten", "broker 2001") in told(world, "Cluster")
    assert world.ready("Cluster", "fleet") == READY


async def test_without_an_answer_of_brokers_nothing_goes() -> None:
    world, operation = await six()
    world.put(cluster(**pool(replicas=3)))
    world.replicas.answers = False
    await operation.until_at_rest()
    assert len(pods(world)) == 6
    assert "no broker answers" in why(world)


@pytest.mark.parametrize("disturb", DISTURBANCES[:2])
async def test_whatever_call_the_operator_dies_at_a_shrink_comes_to_its_end(disturb) -> None:
    async def shrunk(number: int | None) -> World:
        world, operation = await six()
        world.put(cluster(**pool(replicas=3)))
        if number is not None:
            disturb(world, len(world.calls) + number)
        try:
            await operation.until_at_rest()
        except Death:
            world.after_call = world.before_call = lambda _: None
            await Operation(world).until_at_rest()
        return world

    begun = len((await six())[0].calls)
    quiet = await shrunk(None)
    writes = [
        number
        for number, call in enumerate(quiet.calls[begun:])
        if not call.startswith(("get", "list", "describe", "create Event"))
    ]
    assert len(writes) > 20
    for number in writes:
        world = await shrunk(number)
        assert pods(world) == pods(quiet), number
        assert set(marks(world).values()) == {"forgotten"}, number


async def test_a_cluster_made_again_with_fewer_brokers_than_volumes_empties_them_first() -> None:
    world, operation = await at_rest()
    world.remove("Cluster", "fleet")
    world.step()
    world.replicas.counts = {0: 4, 1000: 4, 2000: 4}
    world.put(cluster(**pool(replicas=2)))
    await operation.round()
    await operation.round()
    assert len(world.named("Pod")) == 6, "three brokers, and three members of etcd"
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.replicas.forgotten == [2000]
    assert "fleet-main-c-0" not in world.named("Pod")


async def test_fewer_brokers_that_cannot_be_emptied_leave_min_insync_replicas_as_it_was() -> None:
    """3 -> 2 with topics of three replicas, which fit nowhere: the shrink waits."""
    world, operation = await at_rest(**pool(replicas=3))
    world.replicas.counts = {0: 10, 1000: 10, 2000: 10}
    world.replicas.fewest = 3
    world.put(cluster(**pool(replicas=2)))
    await operation.until_at_rest()
    assert len(pods(world)) == 3
    assert "stays on broker" in why(world)
    properties = properties_of(world)
    assert "\nmin.insync.replicas=2\n" in properties


async def test_brokers_that_went_with_their_volumes_get_their_share_when_they_come_again() -> None:
    """A broker that is unregistered loses its cordon, too (`logfleet.controller.brokers.unregistering`)."""
    keep = {"scaling": {"volumes": "Delete"}}
    world, operation = await at_rest(**pool(replicas=6), **keep)
    world.replicas.counts = dict.fromkeys(SIX, 10)

    world.put(cluster(**pool(replicas=3), **keep))
    await operation.until_at_rest()
    world.put(cluster(**pool(replicas=6), **keep))
    world.replicas.counts |= dict.fromkeys((1, 1001, 2001), 0)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.replicas.cordoned == set()
    assert set(world.replicas.counts.values()) == {10}


async def test_who_is_wanted_again_is_given_replicas_though_another_one_does_not_come_back() -> (
    None
):
    world, operation = await at_rest(**pool(replicas=6))
    world.replicas.counts = dict.fromkeys(SIX, 10)
    world.put(cluster(**pool(replicas=3)))
    for _ in range(3):
        await operation.round()
    world.idle_pods = {"fleet-main-c-1"}
    world.step()
    world.put(cluster(**pool(replicas=6)))
    for _ in range(20):
        await operation.round()
    assert world.replicas.cordoned <= {2001}


class KeepsClaims(World):
    """Some finalizer of a volume claim is never taken off."""

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        if kind != "PersistentVolumeClaim":
            return await super().delete(kind, namespace, name, uid)
        self.calls.append(f"delete {kind} {name}")
        live = self.one(kind, name)
        if "deletionTimestamp" not in live["metadata"]:
            metadata = {**live["metadata"], "deletionTimestamp": self.now().isoformat()}
            self.touch({**live, "metadata": metadata})
        return None


async def test_a_volume_claim_that_never_goes_keeps_no_broker_from_being_replaced() -> None:
    world = KeepsClaims()
    world.put(cluster(**pool(replicas=6), scaling={"volumes": "Delete"}))
    operation = Operation(world)
    await operation.until_at_rest()
    world.put(cluster(**pool(), scaling={"volumes": "Delete"}))
    await operation.until_at_rest()
    going = {"data-fleet-main-a-1", "data-fleet-main-b-1", "data-fleet-main-c-1"}
    assert going <= {*world.named("PersistentVolumeClaim")}
    world.put(cluster(**pool(), scaling={"volumes": "Delete"}, image="logfleet/broker:2"))
    await operation.until_at_rest()
    images = {world.one("Pod", name)["spec"]["containers"][0]["image"] for name in pods(world)}
    assert images == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
