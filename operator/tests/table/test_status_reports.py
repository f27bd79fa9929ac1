"""What a person sees: all conditions in all states, one Event for each action and refusal."""

from collections.abc import Callable

import pytest
from logfleet.resources.plan import PartitionHealth
from logfleet_operator.kube import KubeError

from .operation import Operation, at_rest, cluster, fleet, pool, told, topic, why
from .world import World

pytestmark = pytest.mark.asyncio

EVERY = ["Degraded", "Paused", "Progressing", "Ready", "TopicDeletionBlocked"]


def conditions(world: World) -> dict[str, tuple[str, str]]:
    found = world.one("Cluster", "fleet")["status"]["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def break_images(world: World) -> None:
    world.broken_images = {"logfleet/broker:1"}


STATES: dict[str, tuple[dict[str, object], Callable[[World], None], dict[str, tuple[str, str]]]] = {
    "works": (
        {},
        lambda _: None,
        {"Ready": ("True", "Ready"), "Progressing": ("False", "AsWritten")},
    ),
    "paused from the first": (
        {"paused": True},
        lambda _: None,
        {"Paused": ("True", "Paused"), "Progressing": ("False", "Paused")},
    ),
    "not valid": (
        {"config": {"node.id": "1"}},
        lambda _: None,
        {"Ready": ("False", "Invalid"), "Progressing": ("False", "Refused")},
    ),
    "cannot run": (
        {},
        break_images,
        {
            "Ready": ("False", "Progressing"),
            "Progressing": ("True", "StartingPods"),
            "Degraded": ("True", "PodsCannotRun"),
        },
    ),
}


@pytest.mark.parametrize("state", STATES)
async def test_every_condition_is_there_in_every_state(state: str) -> None:
    spec, befall, wanted = STATES[state]
    world = World()
    befall(world)
    world.put(cluster(**spec))
    await Operation(world).until_at_rest()
    found = conditions(world)
    assert sorted(found) == EVERY
    assert found.items() >= wanted.items()


async def test_a_roll_is_told_as_long_as_it_lasts() -> None:
    world, operation = await at_rest()
    world.put(cluster(image="logfleet/broker:2"))
    await operation.round()
    await operation.round()
    assert conditions(world)["Progressing"] == ("True", "ReplacingPods")
    await operation.until_at_rest()
    assert conditions(world)["Progressing"] == ("False", "AsWritten")


async def test_all_troubles_are_told_not_the_first_only() -> None:
    world, operation = await at_rest()
    world.put(
        cluster(
            config={"num.partitions": "many"},
            **pool(storage={"size": "2Gi", "class": "none"}, name="other"),
        )
    )
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet")[1] == "Invalid"
    world.put(
        cluster(
            config={"num.partitions": "many"},
            zones=["a", "b"],
            **pool(replicas=30, zones=["a", "b"]),
        )
    )
    await operation.until_at_rest()
    stuck = ["fleet-main-a-0", "fleet-main-b-0"]
    world.broken_images = {"logfleet/broker:1"}
    world.step()
    await operation.until_at_rest()
    status = world.one("Cluster", "fleet")["status"]
    assert [each.partition(":")[0] for each in status["troubles"]][:2] == stuck


async def test_everything_that_is_wrong_with_a_spec_is_told_at_once() -> None:
    world = World()
    other = {"name": "other", "replicas": 1, "storage": {"size": "1Gi", "class": "none"}}
    pools = [other, {**other, "name": "third", "storage": {"size": "1Gi", "class": "nil"}}]
    world.put(cluster(config={"num.partitions": "many"}, pools=pools))
    await Operation(world).until_at_rest()
    for part in ("spec.config.num.partitions", "StorageClass: none", "StorageClass: nil"):
        assert part in why(world)


async def test_a_roll_is_one_event_for_each_pod() -> None:
    world, operation = await at_rest()
    world.put(cluster(image="logfleet/broker:2"))
    await operation.until_at_rest()
    evicted = [note for _, reason, note in told(world, "Cluster") if reason == "PodEvicted"]
    assert evicted == [f"fleet-main-{zone}-0 is out of date" for zone in "abc"]
    assert [reason for _, reason, _ in told(world, "Cluster")].count("Ready") == 2


async def test_a_refusal_is_one_event_however_often_it_is_looked_at() -> None:
    world, operation = await at_rest()
    world.put(cluster(**pool(storage={"size": "1Gi"})))
    for _ in range(4):
        await operation.round()
    warnings = [each for each in told(world, "Cluster") if each[0] == "Warning"]
    assert [(reason, "they only grow" in note) for _, reason, note in warnings] == [
        ("NotSupported", True)
    ]
    restarted = Operation(world)
    await restarted.until_at_rest()
    assert [each for each in told(world, "Cluster") if each[0] == "Warning"] == warnings


async def test_what_degrades_is_a_warning_each_time_it_does() -> None:
    world, operation = await fleet(topic())
    for lacking in (
        PartitionHealth(under_replicated=3),
        PartitionHealth(),
        PartitionHealth(under_replicated=3),
    ):
        world.lacks = lacking
        await operation.until_at_rest()
    warnings = [reason for kind, reason, _ in told(world, "Cluster") if kind == "Warning"]
    assert warnings == ["UnderReplicatedPartitions"] * 2


async def test_what_is_done_with_a_topic_is_an_event_of_the_topic_and_its_end_one_of_the_cluster() -> (
    None
):
    world, operation = await fleet(topic())
    world.put(topic(partitions=8, config={"retention.ms": 1000}))
    await operation.until_at_rest()
    world.put(topic(partitions=2))
    await operation.until_at_rest()
    operation.delete_topic("flights")
    await operation.until_at_rest()
    reasons = [reason for _, reason, _ in told(world, "Topic")]
    assert reasons == ["TopicCreated", "TopicGrown", "TopicConfigChanged", "NotSupported"]
    assert ("Normal", "TopicDeleted", "flights") in told(world, "Cluster")


async def test_an_event_that_cannot_be_written_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    async def refuse(_: object) -> None:
        raise KubeError(403, "Forbidden", "no events here")

    monkeypatch.setattr(world, "create", refuse)
    world.put(cluster(metadata={"endpoints": ["etcd:2379"]}))
    await Operation(world).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert told(world, "Cluster") == []
