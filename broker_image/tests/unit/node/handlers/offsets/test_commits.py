import asyncio
from inspect import isawaitable

import pytest
from logfleet.groups.records import OffsetRecord
from logfleet.node.handlers.offsets.commits import offset_commit
from logfleet.node.handlers.offsets.fetches import offset_fetch
from logfleet.wire.codec import encode_bytes
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
    OffsetFetchRequest,
)

from broker_image.tests.unit.node.handlers.groups_rig import GroupsRig

pytestmark = pytest.mark.asyncio

UNKNOWN_ID = b"id of no topic.."
CommitPartition = OffsetCommitRequest.OffsetCommitRequestPartition
CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopics


@pytest.fixture
def rig(host, tmp_path):
    rig = GroupsRig(host, str(tmp_path))
    rig.know_topics(t=2, u=1)
    return rig


def topic_id(rig, name):
    topic = rig.host.image.topic(name)
    return topic.id


async def ask(rig, handler, request, version):
    response = handler(rig.host, request, rig.host.context(version))
    if isawaitable(response):
        response = await response
    encode_bytes(response, version)
    return response


async def commit(rig, version, topics, group_id="g", **fields):
    """topics: (name, id, {partition: offset}). What was answered, by topic and partition."""
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            CommitTopic(
                name=name,
                topic_id=identity,
                partitions=[
                    CommitPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                    for index, offset in offsets.items()
                ],
            )
            for name, identity, offsets in topics
        ],
        **fields,
    )
    response = await ask(rig, offset_commit, request, version)
    return {
        (topic.name or topic.topic_id, partition.partition_index): ErrorCode(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }


async def fetch(rig, version, topics):
    """topics: (name, id, partitions), None for all. Returns offsets and errors."""
    if version >= 8:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
        if topics is not None:
            group.topics = [
                FetchTopic(name=name, topic_id=identity, partition_indexes=indexes)
                for name, identity, indexes in topics
            ]
        response = await ask(rig, offset_fetch, OffsetFetchRequest(groups=[group]), version)
        (answer,) = response.groups
    else:
        request = OffsetFetchRequest(group_id="g", topics=None)
        if topics is not None:
            request.topics = [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, _, indexes in topics
            ]
        answer = await ask(rig, offset_fetch, request, version)
    key = "topic_id" if version >= 10 else "name"
    rows = {
        (getattr(topic, key), partition.partition_index): (
            partition.committed_offset,
            ErrorCode(partition.error_code),
        )
        for topic in answer.topics
        for partition in topic.partitions
    }
    return ErrorCode(answer.error_code), rows


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_and_fetched_by_name(rig, version):
    async with rig.coordinating():
        answers = await commit(rig, version, [("t", bytes(16), {0: 5, 1: 6})])
        assert set(answers.values()) == {ErrorCode.NONE}
        error, rows = await fetch(rig, version, [("t", bytes(16), [0, 1]), ("x", bytes(16), [0])])
        assert error is ErrorCode.NONE
        assert rows == {
            ("t", 0): (5, ErrorCode.NONE),
            ("t", 1): (6, ErrorCode.NONE),
            ("x", 0): (-1, ErrorCode.NONE),
        }
        assert (await fetch(rig, version, None))[1] == {
            ("t", 0): (5, ErrorCode.NONE),
            ("t", 1): (6, ErrorCode.NONE),
        }


async def test_offsets_are_committed_and_fetched_by_id(rig):
    t, u = topic_id(rig, "t"), topic_id(rig, "u")
    async with rig.coordinating():
        answers = await commit(rig, 10, [("", t, {0: 5}), ("", UNKNOWN_ID, {0: 6})])
        assert answers == {
            ("t", 0): ErrorCode.NONE,
            (UNKNOWN_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }
        error, rows = await fetch(rig, 10, [("", t, [0]), ("", u, [0]), ("", UNKNOWN_ID, [0])])
        assert error is ErrorCode.NONE
        assert rows == {
            (t, 0): (5, ErrorCode.NONE),
            (u, 0): (-1, ErrorCode.NONE),
            (UNKNOWN_ID, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID),
        }
        assert (await fetch(rig, 10, None))[1] == {(t, 0): (5, ErrorCode.NONE)}


async def test_a_topic_that_is_gone_cannot_be_called_by_its_id(rig):
    async with rig.coordinating():
        await commit(rig, 9, [("t", bytes(16), {0: 5})])
        rig.host.image = rig.host.image.__class__()
        rig.host.know_topic("__consumer_offsets", {0: 1})
        assert (await fetch(rig, 10, None))[1] == {}
        assert (await fetch(rig, 9, None))[1] == {("t", 0): (5, ErrorCode.NONE)}


async def test_what_is_committed_by_name_belongs_to_the_topic_of_that_name_now(rig):
    async with rig.coordinating():
        await commit(rig, 2, [("t", bytes(16), {0: 5})])
        assert (await fetch(rig, 10, [("", topic_id(rig, "t"), [0])]))[1] == {
            (topic_id(rig, "t"), 0): (5, ErrorCode.NONE)
        }


@pytest.mark.parametrize("version", [2, 9])
async def test_what_was_committed_for_an_earlier_topic_of_a_name_is_not_reported(rig, version):
    async with rig.coordinating():
        key = OffsetCommitKey(group="g", topic="t", partition=0)
        value = OffsetCommitValue(offset=5, metadata="", topic_id=UNKNOWN_ID)
        rig.shard().coordinator.apply(OffsetRecord(key, value))
        for offset in (-1, 6):
            _, rows = await fetch(rig, version, [("t", bytes(16), [0])])
            assert rows == {("t", 0): (offset, ErrorCode.NONE)}
            await commit(rig, 9, [("t", bytes(16), {0: 6})])


async def test_only_what_the_cluster_has_can_be_committed(rig):
    async with rig.coordinating():
        topics = [("t", bytes(16), {0: 5, 2: 6, -1: 7}), ("x", bytes(16), {0: 8})]
        assert await commit(rig, 9, topics) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await commit(rig, 9, [("x", bytes(16), {0: 8})]) == {
            ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert await commit(rig, 9, []) == {}


async def test_another_broker_sends_clients_away(rig):
    assert await commit(rig, 9, [("t", bytes(16), {0: 5})]) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    error, rows = await fetch(rig, 9, [("t", bytes(16), [0])])
    assert (error, rows) == (ErrorCode.NOT_COORDINATOR, {})
    error, rows = await fetch(rig, 2, [("t", bytes(16), [0])])
    assert (error, rows) == (ErrorCode.NOT_COORDINATOR, {})


async def test_version_1_reports_errors_by_partition(rig):
    rig.lead_offsets()
    _, rows = await fetch(rig, 1, [("t", bytes(16), [0])])
    assert rows == {("t", 0): (-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}


async def test_several_groups_are_answered_in_their_order(rig):
    async with rig.coordinating():
        await commit(rig, 9, [("t", bytes(16), {0: 5})], group_id="b")
        groups = [
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
            for group_id in ("a", "b")
        ]
        response = await ask(rig, offset_fetch, OffsetFetchRequest(groups=groups), 8)
        assert [(group.group_id, len(group.topics)) for group in response.groups] == [
            ("a", 0),
            ("b", 1),
        ]


async def test_a_commit_waits_for_its_records(rig):
    async with rig.coordinating() as partition:
        partition.lags = True
        task = asyncio.ensure_future(commit(rig, 9, [("t", bytes(16), {0: 5}), ("x", b"", {0: 1})]))
        fetching = asyncio.ensure_future(fetch(rig, 9, None))
        await asyncio.sleep(0)
        assert not task.done()
        assert not fetching.done()
        rig.lose(partition)
        assert await task == {
            ("t", 0): ErrorCode.NOT_COORDINATOR,
            ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await fetching)[0] is ErrorCode.NOT_COORDINATOR
