import asyncio
from inspect import isawaitable

import pytest
from logfleet.node.handlers.offsets.commits import offset_commit
from logfleet.node.handlers.offsets.deletions import offset_delete
from logfleet.wire.codec import encode_bytes
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetCommitRequest, OffsetDeleteRequest

from broker_image.tests.unit.node.handlers.groups_rig import GroupsRig

pytestmark = pytest.mark.asyncio


@pytest.fixture
def rig(host, tmp_path):
    rig = GroupsRig(host, str(tmp_path))
    rig.know_topics(t=2, u=1)
    return rig


async def delete(rig, *topics: tuple[str, list[int]], group_id: str = "g"):
    """The answer's error, and those of its rows by topic and partition."""
    kind = OffsetDeleteRequest
    request = kind(
        group_id=group_id,
        topics=[
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=n) for n in indexes],
            )
            for name, indexes in topics
        ],
    )
    response = offset_delete(rig.host, request, rig.host.context(0))
    if isawaitable(response):
        response = await response
    encode_bytes(response, 0)
    return ErrorCode(response.error_code).name, {
        (topic.name, row.partition_index): ErrorCode(row.error_code).name
        for topic in response.topics
        for row in topic.partitions
    }


async def commit(rig) -> None:
    row = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    offset_commit(rig.host, OffsetCommitRequest(group_id="g", topics=[topic]), rig.host.context(9))


async def test_what_does_not_exist_is_reported_beside_what_was_deleted(rig):
    async with rig.coordinating():
        await commit(rig)
        assert await delete(rig, ("t", [0, 7]), ("nope", [0]), ("u", [0])) == (
            "NONE",
            {
                ("t", 7): "UNKNOWN_TOPIC_OR_PARTITION",
                ("t", 0): "NONE",
                ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
                ("u", 0): "NONE",
            },
        )
        assert await delete(rig) == ("NONE", {})
        assert await delete(rig, ("nope", [0]), group_id="h") == ("GROUP_ID_NOT_FOUND", {})
        assert await delete(rig, ("t", [0]), group_id="") == ("INVALID_GROUP_ID", {})


async def test_it_is_answered_when_it_is_committed_or_nobody_coordinates(rig):
    async with rig.coordinating() as partition:
        await commit(rig)
        partition.lags = True
        answer = asyncio.ensure_future(delete(rig, ("t", [0]), ("nope", [0])))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not answer.done()
        partition.catch_up()
        assert (await answer)[0] == "NONE"
    rig.lose(partition)
    assert await delete(rig, ("t", [0])) == ("NOT_COORDINATOR", {})
