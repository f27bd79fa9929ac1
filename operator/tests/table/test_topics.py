"""What becomes of Topics: resources in; topics at the brokers, ledger and status out."""

from collections.abc import Callable
from typing import Any

import pytest
from logfleet.resources.plan import ObservedTopic
from logfleet_operator import names
from logfleet_operator.topics.ledger import shard_name, shard_of

from .operation import Operation, blocked, cluster, fleet, ledger, token_in, topic
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
        ({"replicas": 3}, "NotSupported", "this version cannot change it to 3"),
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


async def test_a_deleted_topic_goes_at_once() -> None:
    world, operation = await fleet(topic(), topic("weather"))
    operation.delete_topic("flights")
    await operation.round()
    assert sorted(world.topics) == sorted(ledger(world)) == ["weather"]


async def test_a_topic_deleted_while_no_operator_ran_goes_after_a_second_look() -> None:
    world, _ = await fleet(topic(), topic("weather"))
    world.remove("Topic", "flights")
    later = Operation(world)
    await later.round()
    await later.round()
    assert sorted(world.topics) == ["flights", "weather"]
    await later.until_at_rest()
    assert sorted(world.topics) == ["weather"]


async def test_deleted_and_made_again_it_is_empty_but_not_if_nobody_saw_the_deletion() -> None:
    world, operation = await fleet(topic())
    operation.delete_topic("flights")
    world.put(topic())
    await operation.until_at_rest()
    assert world.topics["flights"].topic_id == "id-2"
    assert world.ready("Topic", "flights") == ("True", "Ready")
    world.remove("Topic", "flights")
    world.put(topic())
    await Operation(world).until_at_rest()
    assert world.topics["flights"].topic_id == "id-2"


async def test_ten_times_made_and_deleted() -> None:
    world, operation = await fleet()
    for _ in range(10):
        world.put(topic())
        await operation.until_at_rest()
        assert world.ready("Topic", "flights") == ("True", "Ready")
        operation.delete_topic("flights")
        await operation.until_at_rest()
        assert world.topics == {}


async def test_a_topic_made_anew_by_somebody_else_is_not_deleted() -> None:
    world, operation = await fleet(topic())
    world.topics["flights"] = ObservedTopic("theirs", 1, 1, {})
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


async def test_deleting_the_cluster_deletes_no_topic() -> None:
    world, operation = await fleet(topic())
    world.one("Cluster", "fleet")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]


@pytest.mark.parametrize(
    "kind, name", [("Namespace", "air"), ("CustomResourceDefinition", "topics.logfleet.dev")]
)
async def test_nothing_is_deleted_while_its_surroundings_go(kind: str, name: str) -> None:
    world, operation = await fleet(topic())
    world.objects[kind, "", name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_reinstalled_crd_deletes_no_topic_and_new_resources_take_them_over(
    *,
    restarted: bool,
) -> None:
    world, operation = await fleet(topic())
    operation.delete_topic("flights")
    world.objects["CustomResourceDefinition", "", "topics.logfleet.dev"]["metadata"]["uid"] = "new"
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert "make Topics for them again" in world.one("Cluster", "fleet")["status"]["why"]
    world.put(topic())
    await (Operation(world) if restarted else operation).until_at_rest()
    assert world.topics["flights"].topic_id == "id-1"
    assert world.ready("Topic", "flights") == ("True", "Ready")


@pytest.mark.parametrize("count", [1, 10, 500])
async def test_deletions_that_were_seen_are_carried_out_however_many(count: int) -> None:
    names_of = [f"topic-{number}" for number in range(count)]
    world, operation = await fleet(topic("stays"), *(topic(name) for name in names_of))
    for name in names_of:
        operation.delete_topic(name)
    await operation.until_at_rest()
    assert sorted(world.topics) == ["stays"]
    assert blocked(world) == ""


async def test_a_reading_ahead_of_the_watch_holds_nothing() -> None:
    """`kubectl delete lft --all`: a pass finds all of them missing, and only two events are there yet."""
    names_of = [f"topic-{number}" for number in range(10)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    last = {name: world.one("Topic", name) for name in names_of}
    for name in names_of:
        world.remove("Topic", name)
    for name in names_of[:2]:
        operation.feed.topic("DELETED", last[name])
    await operation.topics.reconcile("air", "fleet")
    assert sorted(world.topics) == names_of[2:]
    for name in names_of[2:]:
        operation.feed.topic("DELETED", last[name])
    await operation.until_at_rest()
    assert sorted(world.topics) == []
    assert blocked(world) == ""


async def test_many_topics_that_nobody_saw_go_wait_for_a_confirmation() -> None:
    names_of = [f"topic-{number}" for number in range(6)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    for name in names_of[:4]:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert sorted(world.topics) == names_of
    sentence = blocked(world)
    assert sentence.startswith("Topics gone at once: 4 (topic-0, topic-1, topic-2 ...)")
    token = token_in(sentence)
    wrong = cluster()
    wrong["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: "yes"}
    world.put(wrong)
    await operation.until_at_rest()
    assert sorted(world.topics) == names_of
    right = cluster()
    right["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: token}
    world.put(right)
    await operation.until_at_rest()
    assert sorted(world.topics) == names_of[4:]
    assert blocked(world) == ""


def topic_ids(world: World) -> dict[str, str]:
    return {name: found.topic_id for name, found in world.topics.items()}


async def gone_at_once(count: int) -> tuple[World, Operation]:
    """A fleet of `count` Topics that all went while nobody looked, which waits for a confirmation."""
    names_of = [f"topic-{number}" for number in range(count)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    for name in names_of:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert blocked(world)
    return world, operation


@pytest.mark.parametrize("count", [4, 6])
async def test_topics_made_again_while_their_deletion_waits_keep_their_records(count: int) -> None:
    world, operation = await gone_at_once(count)
    assert "make them again to keep the topics" in blocked(world)
    before = topic_ids(world)
    for name in before:
        world.put(topic(name))
        await operation.round()
    await operation.until_at_rest()
    assert topic_ids(world) == before
    assert [world.ready("Topic", name) for name in before] == [("True", "Ready")] * count
    assert blocked(world) == ""


async def test_topics_made_again_before_anybody_looked_do_not_doom_the_others() -> None:
    world, operation = await fleet(*(topic(f"topic-{number}") for number in range(4)))
    before = topic_ids(world)
    for name in before:
        world.remove("Topic", name)
    await operation.round()
    await operation.round()
    world.put(topic("topic-0"))
    await operation.until_at_rest()
    assert topic_ids(world) == before
    assert blocked(world).startswith("Topics gone at once: 3 (topic-1, topic-2, topic-3)")


async def test_those_not_made_again_wait_for_a_confirmation_of_their_own() -> None:
    world, _ = await gone_at_once(4)
    before = topic_ids(world)
    for name in ("topic-0", "topic-1", "topic-2"):
        world.put(topic(name))
    operation = Operation(world)
    await operation.until_at_rest()
    assert topic_ids(world) == before
    sentence = blocked(world)
    assert sentence.startswith("Topics gone at once: 1 (topic-3): their topics stay")
    document = cluster()
    document["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: token_in(sentence)}
    world.put(document)
    await operation.until_at_rest()
    assert sorted(world.topics) == ["topic-0", "topic-1", "topic-2"]
    operation.delete_topic("topic-0")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["topic-1", "topic-2"]
    assert blocked(world) == ""


async def test_a_topic_that_brokers_do_not_delete_is_told_in_the_clusters_status() -> None:
    world, operation = await fleet(topic())
    world.forbidden_topics = {"flights": "deletion is disabled"}
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert "deletion is disabled" in blocked(world)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.forbidden_topics = {}
    await operation.until_at_rest()
    assert world.topics == {}
    assert blocked(world) == ""


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
