"""What becomes of Topics: resources in; topics at the brokers, ledger and status out."""

from collections.abc import Callable
from typing import Any

import pytest
from logfleet.resources.plan import ObservedTopic
from logfleet_operator.topics.ledger import shard_name, shard_of

from .operation import Operation, blocked, cluster, fleet, ledger, topic
from .world import World

pytestmark = pytest.mark.asyncio


def why(world: World, name: str = "flights") -> str:
    return str(world.one("Topic", name)["status"]["why"])


async def test_a_topic_is_made_and_its_status_tells_what_it_is() -> None:
    world, _ = await fleet(topic(config={"retention.ms": 5}))
    assert world.topics["flights"] == ObservedTopic("id-1", 6, 1, {"retention.ms": "5"})
    status = world.one("Topic", "flights")["status"]
    assert status["topicId"] == "id-1"
    assert (status["partitions"], status["replicas"]) == (6, 1)
    assert status["observedGeneration"] == 1
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert ledger(world)["flights"] == {
        "uid": world.one("Topic", "flights")["metadata"]["uid"],
        "name": "flights",
        "policy": "Delete",
        "crd": world.objects["CustomResourceDefinition", "", "topics.logfleet.dev"]["metadata"][
            "uid"
        ],
        "cluster": world.one("Cluster", "fleet")["metadata"]["uid"],
        "topic_id": "id-1",
        "deleting": False,
        "held": False,
    }


async def test_a_topics_name_may_begin_with_dots() -> None:
    world, operation = await fleet(topic("dots", topicName="..flights"), topic())
    assert world.ready("Topic", "dots") == ("True", "Ready")
    assert world.ready("Topic", "flights") == ("True", "Ready")
    operation.delete_topic("dots")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert sorted(ledger(world)) == ["flights"]


async def test_the_ledger_knows_a_topic_before_it_exists() -> None:
    world, _ = await fleet(topic())
    create = world.calls.index("CreateTopic flights")
    written = [
        number for number, call in enumerate(world.calls) if "apply ConfigMap fleet-topics" in call
    ]
    assert written[0] < create < written[1]


async def test_a_topic_grows_and_changes_its_configuration() -> None:
    world, operation = await fleet(topic(config={"retention.ms": 5, "segment.ms": 7}))
    world.put(topic(partitions=8, config={"segment.ms": 8}))
    await operation.until_at_rest()
    assert world.topics["flights"] == ObservedTopic("id-1", 8, 1, {"segment.ms": "8"})
    assert world.ready("Topic", "flights") == ("True", "Ready")


async def test_another_spelling_of_what_brokers_show_is_no_difference() -> None:
    spelled = {"cleanup.policy": "compact, delete", "preallocate": "True", "retention.ms": "007"}
    world, operation = await fleet(topic(config=spelled))
    assert world.ready("Topic", "flights") == ("True", "Ready")
    world.topics["flights"] = ObservedTopic("id-1", 6, 1, spelled)
    changes = world.changes
    await operation.until_at_rest()
    assert world.changes == changes
    assert world.ready("Topic", "flights") == ("True", "Ready")


async def test_changes_behind_the_operators_back_are_undone() -> None:
    world, operation = await fleet(topic(config={"retention.ms": 5}))
    world.topics["flights"] = ObservedTopic("id-1", 6, 1, {"cleanup.policy": "compact"})
    await operation.until_at_rest()
    assert world.topics["flights"].config == {"retention.ms": "5"}


async def test_an_existing_topic_is_adopted_with_its_records() -> None:
    world = World()
    world.topics["flights"] = ObservedTopic("theirs", 6, 1, {})
    world.put(cluster())
    world.put(topic())
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.topics["flights"].topic_id == "theirs"
    assert ledger(world)["flights"]["topic_id"] == "theirs"


@pytest.mark.parametrize(
    "spec, reason, sentence",
    [
        ({"partitions": 2}, "NotSupported", "partitions only grow; write 6 or more"),
        ({"config": {"a": ["b"]}}, "Invalid", "spec.config"),
    ],
)
async def test_what_cannot_be_done_is_told_and_changes_nothing(
    spec: dict[str, Any], reason: str, sentence: str
) -> None:
    world, operation = await fleet(topic())
    before = dict(world.topics)
    world.put(topic(**{"config": {"retention.ms": 1}, **spec}))
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("False", reason)
    assert sentence in why(world)
    assert world.topics == before
    world.put(topic())
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")


async def test_what_brokers_refuse_is_told() -> None:
    world = World()
    world.forbidden_topics = {"flights": "no flights today"}
    world.put(cluster())
    world.put(topic())
    world.put(topic("weather"))
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("False", "Invalid")
    assert why(world) == "the brokers refuse: POLICY_VIOLATION: no flights today"
    assert world.ready("Topic", "weather") == ("True", "Ready")


async def test_who_wrote_too_many_partitions_is_told_a_way_back_that_keeps_the_records() -> None:
    world, operation = await fleet(topic())
    world.forbidden_topics = {"flights": "too many partitions"}
    world.put(topic(partitions=1000))
    await operation.until_at_rest()
    assert why(world).startswith("the brokers refuse: POLICY_VIOLATION: too many partitions; ")
    assert "set deletionPolicy to Retain, delete this Topic and make it again" in why(world)
    world.put(topic(partitions=1000, deletionPolicy="Retain"))
    await operation.until_at_rest()
    operation.delete_topic("flights")
    await operation.until_at_rest()
    world.put(topic())
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.topics["flights"] == ObservedTopic("id-1", 6, 1, {})


async def test_a_change_of_which_brokers_refuse_one_part_is_not_begun() -> None:
    world, operation = await fleet(topic())
    world.forbidden_keys = {"segment.ms"}
    world.put(topic(partitions=12, config={"segment.ms": 1}))
    await operation.until_at_rest()
    assert world.topics["flights"] == ObservedTopic("id-1", 6, 1, {})
    assert world.ready("Topic", "flights") == ("False", "Invalid")
    assert why(world) == "the brokers refuse: INVALID_CONFIG: of no use here"
    world.forbidden_keys = set()
    await operation.until_at_rest()
    assert world.topics["flights"] == ObservedTopic("id-1", 12, 1, {"segment.ms": "1"})


async def test_of_two_resources_for_one_topic_the_older_holds_it() -> None:
    world, operation = await fleet(topic("first", topicName="flights"))
    world.put(topic("second", topicName="flights", partitions=9))
    await operation.until_at_rest()
    assert world.ready("Topic", "first") == ("True", "Ready")
    assert world.ready("Topic", "second") == ("False", "Conflict")
    assert "belongs to the older Topic first" in why(world, "second")
    assert world.topics["flights"].partitions == 6
    operation.delete_topic("second")
    await operation.until_at_rest()
    assert world.topics["flights"].partitions == 6
    world.put(topic("third", topicName="flights", partitions=9))
    await operation.until_at_rest()
    operation.delete_topic("first")
    await operation.until_at_rest()
    assert world.ready("Topic", "third") == ("True", "Ready")
    assert world.topics["flights"] == ObservedTopic("id-2", 9, 1, {})


async def test_the_older_resource_holds_its_topic_also_while_it_is_not_valid() -> None:
    world, operation = await fleet(topic("first", topicName="flights"))
    world.put(topic("second", topicName="flights", partitions=9))
    world.put(topic("first", topicName="flights", config={"a": ["b"]}))
    await operation.until_at_rest()
    assert world.ready("Topic", "first") == ("False", "Invalid")
    assert world.ready("Topic", "second") == ("False", "Conflict")
    assert "belongs to the older Topic first" in why(world, "second")
    operation.delete_topic("second")
    await operation.until_at_rest()
    assert world.topics["flights"] == ObservedTopic("id-1", 6, 1, {})
    world.put(topic("second", topicName="flights", partitions=9))
    await operation.until_at_rest()
    operation.delete_topic("first")
    await operation.until_at_rest()
    assert world.ready("Topic", "second") == ("True", "Ready")
    assert world.topics["flights"] == ObservedTopic("id-2", 9, 1, {})


async def test_of_two_resources_of_one_second_the_one_that_made_the_topic_keeps_it() -> None:
    world, operation = await fleet(topic("first", topicName="flights"))
    created = world.one("Topic", "first")["metadata"]["creationTimestamp"]
    # before the first in the order of names
    world.put(topic("another", topicName="flights", partitions=9))
    world.one("Topic", "another")["metadata"]["creationTimestamp"] = created
    await operation.until_at_rest()
    assert world.ready("Topic", "another") == ("False", "Conflict")
    assert world.topics["flights"].partitions == 6
    assert ledger(world)["flights"]["name"] == "first"


async def test_a_topic_without_its_cluster_says_so_and_works_when_it_comes() -> None:
    world = World()
    world.put(topic())
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("False", "ClusterNotFound")
    world.put(cluster())
    await operation.round()
    assert world.ready("Topic", "flights") == ("False", "ClusterNotReady")
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")


@pytest.mark.parametrize(
    "edit",
    [lambda _: "{}", lambda _: "not JSON", lambda line: line.replace('"Delete"', '"retain"')],
)
async def test_a_line_that_somebody_edited_is_told_and_nothing_moves(
    edit: Callable[[str], str],
) -> None:
    world, operation = await fleet(topic(), topic("weather"))
    shard = shard_name("fleet", shard_of("flights"))
    data = world.one("ConfigMap", shard)["data"]
    data["flights"] = edit(data["flights"])
    world.put(topic("ships"))
    operation.delete_topic("weather")
    retried = operation.worker.queue.retried
    await operation.until_at_rest()
    assert operation.worker.queue.retried == retried
    assert sorted(world.topics) == ["flights", "weather"]
    assert f"ConfigMap {shard}, key flights, is no line of the ledger" in blocked(world)
    assert world.ready("Topic", "ships") == ("False", "Conflict")
    assert why(world, "ships") == blocked(world)
    assert world.ready("Topic", "flights") == ("True", "Ready")
    del data["flights"]
    await operation.until_at_rest()
    assert blocked(world) == ""
    assert sorted(world.topics) == sorted(ledger(world)) == ["flights", "ships"]
    assert world.topics["flights"].topic_id == "id-1"


async def test_a_copy_of_the_ledger_says_nothing() -> None:
    world, operation = await fleet(topic())
    shard = world.one("ConfigMap", shard_name("fleet", shard_of("flights")))
    labels = dict(shard["metadata"]["labels"])
    data = {"flights": shard["data"]["flights"].replace("Delete", "Retain")}
    world.put({**shard, "metadata": {"name": "zz-copy", "labels": labels}, "data": data, "spec": 0})
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert world.topics == {}


async def test_a_paused_cluster_changes_no_topic_and_says_so() -> None:
    world, operation = await fleet(topic(), topic("weather"))
    world.put(cluster(paused=True))
    world.put(topic(partitions=9))
    world.put(topic("ships"))
    world.put(topic("planes", config={"a": ["b"]}))
    await operation.until_at_rest()
    assert world.topics["flights"].partitions == 6
    for name in ("flights", "ships"):
        assert world.ready("Topic", name) == ("False", "ClusterNotReady")
        assert why(world, name) == "Cluster fleet is paused: nothing is changed"
    assert world.ready("Topic", "planes") == ("False", "Invalid")
    assert world.ready("Topic", "weather") == ("True", "Ready")
    world.put(cluster())
    await operation.until_at_rest()
    assert world.topics["flights"].partitions == 9
    assert world.ready("Topic", "flights") == world.ready("Topic", "ships") == ("True", "Ready")


async def test_brokers_that_do_not_answer_leave_ready_topics_ready() -> None:
    world, operation = await fleet(topic())
    world.unreachable = True
    world.put(topic("weather"))
    for _ in range(3):
        await operation.round()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.ready("Topic", "weather") == ("False", "ClusterNotReady")
    assert "no broker of fleet answers" in why(world, "weather")
    world.unreachable = False
    await operation.until_at_rest()
    assert world.ready("Topic", "weather") == ("True", "Ready")
