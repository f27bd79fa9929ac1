import pytest
from logfleet.controller.brokers import vanishing
from logfleet.metadata.kinds import brokers
from logfleet.metadata.kinds.brokers import FENCED, BrokerValue
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.store import Put
from logfleet.node.handlers.admin.topics import create_one
from logfleet.replication.partition_state import with_isr
from logfleet.telemetry.decisions import Kind
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
)

from broker_image.tests.unit.controller.running.controller_rig import recorded

pytestmark = pytest.mark.asyncio
PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER, GROUP = 2, 4, 32


async def elect(node, topics: dict[str, list[int]] | None, kind: int = PREFERRED, **options):
    """The error of the answer, and (topic, partition, error) of its rows."""
    rows = None
    if topics is not None:
        rows = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=1000)
    answer = await node.ask(request, **options)
    return ErrorCode(answer.error_code).name, [
        (result.topic, row.partition_id, ErrorCode(row.error_code).name)
        for result in answer.replica_election_results
        for row in result.partition_result
    ]


async def test_leaders_are_where_they_should_be(node, versions):
    await create_one(node.controller_access, "t", 2, 1, {})
    for version in versions(ElectLeadersRequest):
        assert await elect(node, {"t": [0, 2], "nope": [0]}, version=version) == (
            "NONE",
            [
                ("t", 0, "ELECTION_NOT_NEEDED"),
                ("t", 2, "UNKNOWN_TOPIC_OR_PARTITION"),
                ("nope", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
            ],
        )
    assert await elect(node, {"t": [1]}, 2) == ("INVALID_REQUEST", [("t", 1, "INVALID_REQUEST")])
    assert await elect(node, None, 2) == ("INVALID_REQUEST", [])


async def test_of_all_topics_only_what_is_amiss_is_reported(node):
    await create_one(node.controller_access, "t", 2, 1, {})
    assert await elect(node, None) == ("NONE", [])
    await node.unregister()
    await node.until(lambda image: not image.topic("t").partitions[1].has_leader)
    for kind, error in ((PREFERRED, "PREFERRED"), (UNCLEAN, "ELIGIBLE")):
        _, rows = await elect(node, None, kind)
        assert [(name, index) for name, index, _ in rows] == [("t", 0), ("t", 1)]
        assert all(each.startswith(error) for *_, each in rows)


async def test_leaders_are_moved_to_preferred_replicas_and_to_the_remaining_ones(node):
    await node.write(brokers.BROKER.put(2, BrokerValue("i", ())))
    await node.until(lambda image: image.brokers[2].is_active)
    await create_one(node.controller_access, "t", 2, 2, {})
    await node.write(brokers.BROKER.delete(2))
    await node.until(lambda image: {each.leader for each in image.topic("t").partitions} == {1})
    first = [each.replicas[0] for each in node.image.topic("t").partitions]
    moved = first.index(2)
    assert await elect(node, None) == ("NONE", [("t", moved, "PREFERRED_LEADER_NOT_AVAILABLE")])
    await node.write(brokers.BROKER.put(2, BrokerValue("i", ())))
    broker = (await node.until(lambda image: image.brokers[2].is_active)).brokers[2]
    topic = node.image.topic("t")
    state = with_isr(topic.partitions[moved], [*topic.partitions[moved].isr, (2, broker.epoch)])
    await node.write(PARTITION.put((topic.id, moved), state))
    assert await elect(node, None) == ("NONE", [("t", moved, "NONE")])
    assert node.image.topic("t").partitions[moved].leader == 2
    await node.write(brokers.BROKER.delete(2))
    await node.until(lambda image: image.topic("t").partitions[moved].leader == 1)
    await node.unregister()
    await node.until(lambda image: not image.topic("t").partitions[moved].has_leader)
    await node.write(brokers.BROKER.put(2, BrokerValue("i", ())))
    await node.until(lambda image: image.brokers[2].is_active)
    assert await elect(node, {"t": [moved]}, UNCLEAN) == ("NONE", [("t", moved, "NONE")])
    assert node.image.topic("t").partitions[moved].leader == 2
    assert node.decisions.count(Kind.UNCLEAN_ELECTION) == 1
    (decision,) = recorded(node.decisions, Kind.UNCLEAN_ELECTION)
    assert decision.cause.startswith("ElectLeaders requests it: broker 2")


async def test_the_longest_of_those_that_are_left_is_elected_on_demand(node, monkeypatch):
    monkeypatch.setattr(vanishing, "HELD_MS_MAX", 0)
    for each in (2, 3):
        await node.write(brokers.BROKER.put(each, BrokerValue("i", ())))
    await node.until(lambda image: all(each.is_active for each in image.brokers.values()))
    await create_one(node.controller_access, "t", 1, 3, {})
    last = node.image.topic("t").partitions[0].leader
    left = [each for each in (1, 2, 3) if each != last]
    await node.write(*(brokers.BROKER.delete(each) for each in (1, 2, 3)))
    await node.until(lambda image: image.fences[last].state == FENCED)
    await register_uncleanly(node, *left)
    assert not node.image.topic("t").partitions[0].has_leader, "the last leader is waited for"
    asked: list[int] = []

    async def answer(_image, places):
        ((place, brokers),) = places.items()
        asked.extend(each.id for each in brokers)
        return {place: {(each.id, each.epoch): (0, 10 * each.id) for each in brokers}}

    node.controller.query_log_ends = answer
    assert await elect(node, {"t": [0]}, UNCLEAN) == ("NONE", [("t", 0, "NONE")])
    assert node.image.topic("t").partitions[0].leader == max(left)
    assert sorted(asked) == left


async def register_uncleanly(node, *broker_ids: int) -> None:
    for each in broker_ids:
        value = brokers.BROKER.encode(BrokerValue("i", (), unclean=True))
        await node.write(Put(brokers.BROKER.key(each), value))
    await node.until(lambda image: all(image.brokers[each].is_active for each in broker_ids))


async def test_an_election_without_controller_is_refused_row_by_row(start):
    node = await start(stands=False)
    assert await elect(node, {"t": [0]}) == ("NOT_CONTROLLER", [("t", 0, "NOT_CONTROLLER")])
    rows_only = await elect(node, {"t": [0]}, version=0)
    assert rows_only == ("NONE", [("t", 0, "NOT_CONTROLLER")]), (
        "version 0 has no other field for it"
    )


def reassignment(*wanted: tuple[int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    """Of topic t: index and replicas, None to cancel."""
    kind = AlterPartitionReassignmentsRequest
    rows = [
        kind.ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in wanted
    ]
    return kind(topics=[kind.ReassignableTopic(name="t", partitions=rows)], timeout_ms=10_000)


async def reassign(node, *wanted: tuple[int, list[int] | None], version: int = 1) -> list[str]:
    (result,) = (await node.ask(reassignment(*wanted), version)).responses
    return [ErrorCode(row.error_code).name for row in result.partitions]


async def moving(node, topics=None) -> list[tuple[int, list[int], list[int], list[int]]]:
    answer = await node.ask(ListPartitionReassignmentsRequest(topics=topics))
    assert answer.error_code == 0
    return [
        (row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    ]


async def test_a_partition_moves_and_is_listed_until_it_is_there(node, versions):
    await create_one(node.controller_access, "t", 2, 1, {})
    await node.write(brokers.BROKER.put(2, BrokerValue("i", ())))
    broker = (await node.until(lambda image: image.brokers[2].is_active)).brokers[2]
    origins = [state.replicas for state in node.image.topic("t").partitions]
    index = origins.index((1,))
    for version in versions(AlterPartitionReassignmentsRequest):
        assert await reassign(node, (index, [2]), version=version) == ["NONE"]
        assert await moving(node) == [(index, [2, 1], [2], [1])]
        assert await reassign(node, (index, None), version=version) == ["NONE"]
        assert await moving(node) == []
    assert await reassign(node, (index, [1]), (9, [1]), (index, None)) == [
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_REQUEST",
    ]
    assert await reassign(node, (index, None)) == ["NO_REASSIGNMENT_IN_PROGRESS"]
    assert await reassign(node, (index, [2])) == ["NONE"]
    kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    assert len(await moving(node, [kind(name="t", partition_indexes=[index])])) == 1
    assert await moving(node, [kind(name="t", partition_indexes=[9])]) == []
    topic = node.image.topic("t")
    joined = with_isr(topic.partitions[index], [*topic.partitions[index].isr, (2, broker.epoch)])
    await node.write(PARTITION.put((topic.id, index), joined))
    image = await node.until(lambda image: image.topic("t").partitions[index].replicas == (2,))
    assert image.topic("t").partitions[index].leader == 2
    assert await moving(node) == []
    causes = [each.cause for each in recorded(node.decisions, Kind.REASSIGNMENT)]
    assert causes[-2:] == [
        "AlterPartitionReassignments requests it",
        "all replicas of the target are in sync",
    ]


async def test_a_reassignment_without_controller_is_refused(start):
    node = await start(stands=False)
    answer = await node.ask(reassignment((0, [1])), 1)
    assert (ErrorCode(answer.error_code).name, answer.responses) == ("NOT_CONTROLLER", [])


async def test_what_can_be_configured_is_listed(node):
    await create_one(node.controller_access, "t", 1, 1, {})

    async def listed(*kinds: int, version: int | None = None):
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = await node.ask(request, version)
        rows = [(row.resource_type, row.resource_name) for row in answer.config_resources]
        return ErrorCode(answer.error_code).name, rows

    assert await listed(version=0) == ("NONE", [])
    assert await listed() == ("NONE", [(8, "1"), (BROKER, "1"), (TOPIC, "t")])
    assert await listed(TOPIC, TOPIC, GROUP) == ("NONE", [(TOPIC, "t")])
    assert await listed(TOPIC, 3) == ("UNSUPPORTED_VERSION", [])
