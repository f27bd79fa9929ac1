"""If Kubernetes refuses one Topic's line or status, the other Topics do not wait."""

import pytest
from logfleet_operator import names
from logfleet_operator.queue import BACKOFF_MAX_S, WorkQueue
from logfleet_operator.topics.ledger import shard_name, shard_of
from logfleet_operator.topics.topic_reconciler import UNAVAILABLE_S
from logfleet_operator.worker import Key

from .operation import Operation, blocked, cluster, fleet, ledger, token_in, topic
from .world import NAMESPACE, World

pytestmark = pytest.mark.asyncio

QUOTA = "exceeded quota: configmaps"
TOPICS = Key("topics", NAMESPACE, "fleet")
FOUR = [f"topic-{number}" for number in range(4)]  # so many that deletions of all wait


def shard(name: str) -> str:
    return shard_name("fleet", shard_of(name))


def refuse_ledger(world: World, name: str) -> None:
    """Let no line of this topic be written."""
    world.refused = {("ConfigMap", shard(name)): QUOTA}


async def all_deleted() -> tuple[World, Operation]:
    """A person deleted all four, the first one's line cannot be written; no pass has run yet."""
    world, operation = await fleet(*(topic(name) for name in FOUR))
    refuse_ledger(world, FOUR[0])
    for name in FOUR:
        world.remove("Topic", name)
    await operation.round()
    return world, operation


async def looked_at(operation: Operation) -> WorkQueue[Key]:
    """The queue after all that is due was done, as an event of the Topics brings it about."""
    worker, world = operation.worker, operation.world
    worker.add(TOPICS)
    while (key := worker.queue.take(world.now_s)) is not None:
        await worker.work_on(key)
    return worker.queue


def actions_on(world: World, name: str) -> list[str]:
    actions = ("CreateTopic", "GrowTopic", "AlterTopicConfig", "DeleteTopic")
    return [call for call in world.calls if call.startswith(actions) and call.split()[1] == name]


async def test_a_topic_whose_line_is_refused_waits_alone_and_is_told() -> None:
    assert len({shard(name) for name in ("flights", "weather", "ships")}) == 3
    world = World()
    refuse_ledger(world, "flights")
    for document in (cluster(), topic(), topic("weather"), topic("ships")):
        world.put(document)
    operation = Operation(world)
    await operation.until_at_rest()
    assert sorted(world.topics) == sorted(ledger(world)) == ["ships", "weather"]
    assert world.ready("Topic", "weather") == world.ready("Topic", "ships") == ("True", "Ready")
    assert world.ready("Topic", "flights") == ("False", "Progressing")
    why = world.one("Topic", "flights")["status"]["why"]
    assert f"Kubernetes refuses ConfigMap {shard('flights')}" in why
    assert QUOTA in why
    assert operation.worker.queue.retried > 0
    world.refused = {}
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert sorted(world.topics) == ["flights", "ships", "weather"]


async def test_a_config_map_of_somebody_else_is_left_as_it_is_and_its_topics_wait_alone() -> None:
    world = World()
    theirs = world.put(
        {"kind": "ConfigMap", "metadata": {"name": shard("flights")}, "data": {"colour": "red"}}
    )
    for document in (cluster(), topic(), topic("weather")):
        world.put(document)
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.one("ConfigMap", shard("flights")) == theirs
    assert sorted(world.topics) == ["weather"]
    assert world.ready("Topic", "weather") == ("True", "Ready")
    why = world.one("Topic", "flights")["status"]["why"]
    assert f"ConfigMap {shard('flights')} exists and is not this Cluster's: remove it" in why
    world.remove("ConfigMap", shard("flights"))
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights", "weather"]


async def test_a_topic_whose_status_is_refused_keeps_no_other_waiting() -> None:
    world = World()
    world.refused = {("Topic/status", name): "denied" for name in ("flights", "planes")}
    for document in (
        *(cluster(), topic(), topic("weather")),
        *(topic("planes", config={"a": ["b"]}), topic("trains", config={"a": ["b"]})),
    ):
        world.put(document)
    operation = Operation(world)
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights", "weather"]
    assert "status" not in world.one("Topic", "flights")
    assert world.ready("Topic", "weather") == ("True", "Ready")
    assert world.ready("Topic", "trains") == ("False", "Invalid")
    assert operation.worker.queue.retried > 0
    world.refused = {}
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.ready("Topic", "planes") == ("False", "Invalid")


async def test_a_topic_of_a_cluster_that_is_not_there_is_told_though_another_cannot_be() -> None:
    world = World()
    world.refused = {("Topic/status", "flights"): "denied"}
    world.put(topic())
    world.put(topic("weather"))
    await Operation(world).until_at_rest()
    assert world.ready("Topic", "weather") == ("False", "ClusterNotFound")


async def test_a_ready_topic_stays_ready_while_its_config_map_takes_no_other_line() -> None:
    other = next(
        name for name in (f"t{number}" for number in range(99)) if shard(name) == shard("flights")
    )
    world, operation = await fleet(topic())
    refuse_ledger(world, other)
    world.put(topic(other))
    world.put(topic(config={"retention.ms": 5}))
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.topics["flights"].config == {"retention.ms": "5"}
    assert world.ready("Topic", other) == ("False", "Progressing")
    assert other not in world.topics


async def test_no_topic_is_deleted_whose_end_cannot_be_written_down() -> None:
    world, operation = await fleet(topic(), topic("weather"))
    refuse_ledger(world, "flights")
    operation.delete_topic("flights")
    operation.delete_topic("weather")
    await operation.until_at_rest()
    assert sorted(world.topics) == sorted(ledger(world)) == ["flights"]
    assert actions_on(world, "flights") == ["CreateTopic flights"]
    world.refused = {}
    await operation.until_at_rest()
    assert world.topics == {}


async def test_a_policy_that_cannot_be_written_down_saves_the_topic_and_is_told() -> None:
    world, operation = await fleet(topic())
    refuse_ledger(world, "flights")
    world.put(cluster(paused=True))
    world.put(topic(deletionPolicy="Retain"))
    await operation.until_at_rest()
    assert QUOTA in world.one("Topic", "flights")["status"]["why"]
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Topic", "flights") == ("False", "Progressing")
    operation.delete_topic("flights")
    await operation.until_at_rest()
    world.refused = {}
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


async def test_while_one_topic_gone_cannot_be_held_no_other_is_taken_over() -> None:
    world, operation = await all_deleted()
    await operation.round()
    for name in FOUR[1:]:
        world.put(topic(name))
    await operation.until_at_rest()
    assert QUOTA in world.one("Topic", FOUR[1])["status"]["why"]
    world.refused = {}
    await operation.until_at_rest()
    assert sorted(world.topics) == FOUR
    assert f"Topics gone at once: 1 ({FOUR[0]})" in blocked(world)
    assert names.CONFIRM_ANNOTATION in blocked(world)
    assert world.ready("Topic", FOUR[1]) == ("True", "Ready")


async def test_deletions_that_wait_are_told_though_a_topic_s_status_cannot_be() -> None:
    world, operation = await fleet(*(topic(name) for name in FOUR), topic())
    world.refused = {("Topic/status", "flights"): "denied"}
    world.put(topic(partitions=12))
    for name in FOUR:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert "Topics gone at once: 4" in blocked(world)


async def test_deletions_that_wait_are_told_though_the_cluster_itself_cannot_go_on() -> None:
    world, operation = await fleet(*(topic(name) for name in FOUR))
    world.refused = {("ConfigMap", "fleet-record"): "denied"}
    world.put(cluster(config={"log.retention.hours": 5}))
    for name in FOUR:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "Topics gone at once: 4" in blocked(world)
    told = [each["type"] for each in world.one("Cluster", "fleet")["status"]["conditions"]]
    assert sorted(told) == ["Degraded", "Paused", "Progressing", "Ready", "TopicDeletionBlocked"]
    world.refused = {}
    for name in FOUR:
        world.put(topic(name))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert blocked(world) == ""


async def test_a_topic_that_could_not_be_held_is_still_not_deleted_without_a_word() -> None:
    world, operation = await fleet(*(topic(name) for name in FOUR))
    refuse_ledger(world, FOUR[0])
    for name in FOUR:
        world.remove("Topic", name)  # of which no event tells
    await operation.until_at_rest()
    assert "Topics gone at once: 4" in blocked(world)
    assert QUOTA in blocked(world)
    for name in FOUR[1:]:
        world.put(topic(name))
    await operation.until_at_rest()
    world.refused = {}
    await operation.until_at_rest()
    assert sorted(world.topics) == FOUR
    assert f"Topics gone at once: 1 ({FOUR[0]})" in blocked(world)
    assert world.ready("Topic", FOUR[1]) == ("True", "Ready")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 2, 3), (1, 2, 3, 0)])
async def test_topics_made_again_one_by_one_keep_their_records_though_one_cannot_be_held(
    order: tuple[int, ...],
) -> None:
    world, operation = await all_deleted()
    ids = {name: found.topic_id for name, found in world.topics.items()}
    assert sorted(ids) == FOUR
    await operation.until_at_rest()
    for number in order:
        world.put(topic(FOUR[number]))
        await operation.until_at_rest()
    world.refused = {}
    await operation.until_at_rest()
    assert {name: found.topic_id for name, found in world.topics.items()} == ids
    assert all(world.ready("Topic", name) == ("True", "Ready") for name in FOUR)


async def test_a_confirmation_counts_until_it_can_be_written_down() -> None:
    world, operation = await all_deleted()
    await operation.until_at_rest()
    confirmed = cluster()
    token = token_in(blocked(world))
    confirmed["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: token}
    world.put(confirmed)
    await operation.until_at_rest()
    assert sorted(world.topics) == FOUR[:1]
    world.refused = {}
    await operation.until_at_rest()
    assert world.topics == {}


async def test_a_topic_of_which_kubernetes_refuses_something_for_good_delays_no_other() -> None:
    world, operation = await fleet(topic(), topic("weather"))
    world.refused = {("Topic/status", "flights"): "denied"}
    world.put(topic(partitions=12))
    for _ in range(8):  # until its own pause is as long as they get
        await operation.round()
    world.put(topic("weather", partitions=12))
    world.unreachable = True
    queue = await looked_at(operation)
    assert queue.next_due() == world.now_s + UNAVAILABLE_S
    world.unreachable = False
    world.now_s += UNAVAILABLE_S
    queue = await looked_at(operation)
    assert world.ready("Topic", "weather") == ("True", "Ready")
    assert queue.next_due() == world.now_s + BACKOFF_MAX_S
