"""What partitions lack is reported as long as it lasts, by the Cluster and the Topics."""

from typing import Any

import pytest
from logfleet.resources.plan import PartitionHealth
from logfleet_operator.admin import AdminRefused
from logfleet_operator.topics.topic_reconciler import DEGRADED_S
from msgspec.structs import replace

from .operation import at_rest, cluster, fleet, topic, why
from .world import World

pytestmark = pytest.mark.asyncio

LACKING = PartitionHealth(offline=1, under_min_isr=2, under_replicated=3)


def degraded(world: World) -> dict[str, Any]:
    status = world.one("Cluster", "fleet")["status"]
    (found,) = (each for each in status["conditions"] if each["type"] == "Degraded")
    return {**found, "partitions": status.get("partitions")}


def lack(world: World, partition_health: PartitionHealth) -> None:
    world.lacks = partition_health
    world.topics["flights"] = replace(world.topics["flights"], partition_health=partition_health)


async def test_a_cluster_tells_what_its_partitions_lack_while_they_do() -> None:
    world, operation = await fleet(topic())
    told = degraded(world)
    assert (told["status"], told["reason"], told["message"]) == ("False", "NotDegraded", "")
    assert told["partitions"] == {"offline": 0, "underMinIsr": 0, "underReplicated": 0}
    lack(world, LACKING)
    await operation.until_at_rest()
    told = degraded(world)
    assert (told["status"], told["reason"]) == ("True", "OfflinePartitions")
    assert told["partitions"] == {"offline": 1, "underMinIsr": 2, "underReplicated": 3}
    assert told["message"] in why(world)
    assert told["message"] == (
        "1 partition without a leader (they cannot be used), 2 partitions with too few in-sync "
        "replicas for acks=all, 3 partitions short of an in-sync replica"
    )
    assert world.ready("Cluster", "fleet") == ("False", "OfflinePartitions")
    lack(world, PartitionHealth(under_min_isr=2, under_replicated=3))
    await operation.until_at_rest()
    assert degraded(world)["reason"] == "UnderMinIsrPartitions"
    assert world.ready("Cluster", "fleet") == ("True", "Ready"), "what it has can be used"
    lack(world, PartitionHealth())
    await operation.until_at_rest()
    assert degraded(world)["status"] == "False"
    assert why(world) == "all brokers are ready"


async def test_a_cluster_without_topics_of_its_own_tells_it_too() -> None:
    """The brokers' own topics, and those that somebody else made."""
    world, operation = await at_rest()
    world.lacks = PartitionHealth(under_replicated=3)
    await operation.until_at_rest()
    assert degraded(world)["reason"] == "UnderReplicatedPartitions"


async def test_what_is_degraded_is_looked_at_again_soon() -> None:
    world, operation = await fleet(topic())
    lack(world, LACKING)
    after, _ = await operation.topics.reconcile("air", "fleet")
    assert after == DEGRADED_S
    lack(world, PartitionHealth())
    assert (await operation.topics.reconcile("air", "fleet"))[0] is None


async def test_while_no_broker_answers_nothing_is_claimed() -> None:
    world, operation = await fleet(topic())
    world.unreachable = True
    await operation.until_at_rest()
    told = degraded(world)
    assert (told["status"], told["partitions"]) == ("Unknown", None)


async def test_a_topic_with_offline_partitions_is_not_ready_and_one_that_lacks_replicas_says_so() -> (
    None
):
    world, operation = await fleet(topic())
    lack(world, PartitionHealth(under_replicated=2))
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    said = "flights is as written, but 2 partitions short of an in-sync replica"
    assert world.one("Topic", "flights")["status"]["why"] == said
    lack(world, LACKING)
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("False", "OfflinePartitions")
    assert "1 partition without a leader" in world.one("Topic", "flights")["status"]["why"]
    lack(world, PartitionHealth())
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.one("Topic", "flights")["status"]["why"] == "flights is as written"


async def test_a_topic_whose_replicas_cannot_be_had_tells_what_the_brokers_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentence = "Unable to replicate the partition 5 time(s): only 3 broker(s) are registered."

    def refuse(_: object) -> None:
        raise AdminRefused("INVALID_REPLICATION_FACTOR", sentence)

    world, operation = await fleet()
    monkeypatch.setattr(world, "_judge", refuse)
    world.put(topic(replicas=5))
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("False", "Invalid")
    assert sentence in world.one("Topic", "flights")["status"]["why"]
    monkeypatch.undo()
    await operation.until_at_rest()
    assert world.ready("Topic", "flights")[1] != "Invalid", "more brokers may have come"


async def test_a_topic_gets_more_replicas_and_fewer() -> None:
    world, operation = await fleet(topic(replicas=1))
    for count in (3, 2):
        world.put(topic(replicas=count))
        await operation.until_at_rest()
        assert world.ready("Topic", "flights") == ("True", "Ready")
        assert world.topics["flights"].replicas == count
        assert world.one("Topic", "flights")["status"]["replicas"] == count


async def test_a_paused_cluster_whose_broker_came_back_is_ready_again() -> None:
    world, operation = await at_rest()
    world.put(cluster(paused=True))
    await operation.until_at_rest()
    world.lacks = PartitionHealth(offline=3, under_replicated=3)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "OfflinePartitions")
    world.lacks = PartitionHealth()
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
