import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.auth.operations import Operation, Resource
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.offsets.fetches import offset_fetch
from logfleet.node.handlers.offsets.txn_offsets import txn_offset_commit
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.wire.apis import api_of
from logfleet.wire.codec import encode_bytes
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)

from broker_image.tests.unit.node.groups.groups_rig import mark
from broker_image.tests.unit.node.handlers.groups_rig import GroupsRig

pytestmark = pytest.mark.asyncio

UNKNOWN_ID = b"id of no topic.."
VERSIONS = range(api_of(TxnOffsetCommitRequest).max_version + 1)


class Enlisting:
    """Asks nobody. error: its answer; may_answer: cleared, the answer waits for it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[int, int], int, int]] = []
        self.error = ErrorCode.NONE
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def enlist_offsets(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partition: LeaderPartition,
        request_version: int,
    ) -> ErrorCode:
        self.asked.append((transactional_id, producer, partition.index, request_version))
        await self.may_answer.wait()
        return self.error


class Rig(GroupsRig):
    def __init__(self, host: Any, path: str) -> None:
        super().__init__(host, path)
        self.enlisting = Enlisting()
        host.transactions = SimpleNamespace(enlisting=self.enlisting)
        self.know_topics(t=2, u=1)


@pytest.fixture
def rig(host, tmp_path):
    return Rig(host, str(tmp_path))


def id_of(rig, name):
    return rig.host.image.topic(name).id


async def commit(rig, version, *topics, context=None, **fields):
    """topics: (name or id, {partition: offset}). The errors, by topic and partition."""
    kind = TxnOffsetCommitRequest
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=fields.pop("group_id", "g"),
        producer_id=7,
        producer_epoch=3,
        topics=[
            kind.TxnOffsetCommitRequestTopic(
                name=name if isinstance(name, str) else "",
                topic_id=name if isinstance(name, bytes) else bytes(16),
                partitions=[
                    kind.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics
        ],
        **fields,
    )
    context = context or rig.host.context(version)
    response = await txn_offset_commit(rig.host, request, context)
    encode_bytes(response, version)
    return {
        (topic.topic_id if version >= 6 else topic.name, row.partition_index): ErrorCode(
            row.error_code
        )
        for topic in response.topics
        for row in topic.partitions
    }


async def fetch(rig, *, stable):
    kind = OffsetFetchRequest
    group = kind.OffsetFetchRequestGroup(
        group_id="g", topics=[kind.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    )
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    response = offset_fetch(rig.host, request, rig.host.context(8))
    assert isinstance(response, OffsetFetchResponse)
    rows = response.groups[0].topics[0].partitions
    return [
        ErrorCode(row.error_code).name if row.error_code else row.committed_offset for row in rows
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_are_staged_in_every_version_and_counted_after_the_marker(rig, version):
    async with rig.coordinating() as partition:
        topic = id_of(rig, "t") if version >= 6 else "t"
        assert await commit(rig, version, (topic, {0: 5})) == {(topic, 0): ErrorCode.NONE}
        assert rig.enlisting.asked == [("x", (7, 3), 0, version)]
        assert await fetch(rig, stable=False) == [-1, -1]
        assert await fetch(rig, stable=True) == ["UNSTABLE_OFFSET_COMMIT", -1]
        rig.coordinators.end_transactions(partition, [mark(partition)])
        assert await fetch(rig, stable=True) == [5, -1]


async def test_partitions_that_do_not_exist_are_refused_and_the_others_are_staged(rig):
    async with rig.coordinating():
        answer = await commit(rig, 5, ("t", {0: 5, 2: 5, -1: 5}), ("no", {0: 5}))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer == {
            ("t", 0): ErrorCode.NONE,
            ("t", 2): unknown,
            ("t", -1): unknown,
            ("no", 0): unknown,
        }
        answer = await commit(rig, 6, (UNKNOWN_ID, {0: 5}), (id_of(rig, "u"), {0: 5, 1: 5}))
        assert answer == {
            (UNKNOWN_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
            (id_of(rig, "u"), 0): ErrorCode.NONE,
            (id_of(rig, "u"), 1): unknown,
        }


async def test_without_a_partition_that_exists_the_transaction_is_not_touched(rig):
    async with rig.coordinating():
        answer = await commit(rig, 5, ("no", {0: 5}))
        assert answer == {("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert rig.enlisting.asked == []


async def test_what_the_coordinator_of_the_transaction_refuses_is_not_staged(rig):
    async with rig.coordinating() as partition:
        for error in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS):
            rig.enlisting.error = error
            assert await commit(rig, 5, ("t", {0: 5})) == {("t", 0): error}
        assert partition.log.log_end_offset == 0


@pytest.mark.parametrize(
    "version,expected",
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
async def test_old_clients_do_not_hear_that_a_coordinator_loads(rig, version, expected):
    rig.lead_offsets()  # nothing loads it
    assert await commit(rig, version, ("t", {0: 5})) == {("t", 0): expected}
    async with rig.coordinating():
        rig.enlisting.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await commit(rig, version, ("t", {0: 5})) == {("t", 0): expected}


async def test_another_broker_may_be_the_coordinator_before_and_after_the_question(rig):
    assert await commit(rig, 5, ("t", {0: 5})) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    async with rig.coordinating() as partition:
        rig.enlisting.may_answer.clear()
        member = {"member_id": "m", "generation_id_or_member_epoch": 3}
        committing = asyncio.ensure_future(commit(rig, 5, ("t", {0: 5}), **member))
        await asyncio.sleep(0)
        rig.lose(partition)
        rig.enlisting.may_answer.set()
        assert await committing == {("t", 0): ErrorCode.NOT_COORDINATOR}
        assert partition.log.log_end_offset == 0


async def test_a_group_has_a_name(rig):
    async with rig.coordinating():
        answer = await commit(rig, 5, ("t", {0: 5}), group_id="")
        assert answer == {("t", 0): ErrorCode.INVALID_GROUP_ID}


async def test_a_client_that_leaves_is_answered_by_an_error(rig):
    async with rig.coordinating() as partition:
        partition.lags = True
        committing = asyncio.ensure_future(commit(rig, 5, ("t", {0: 5})))
        await asyncio.sleep(0)
        rig.lose(partition)
        assert await committing == {("t", 0): ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize(
    "denied,expected",
    [
        ("x", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_a_client_needs_the_transactional_id_and_the_group(rig, denied, expected):
    class Denied(RequestContext, frozen=True):
        def may(self, operation: Operation, resource: Resource, /) -> bool:
            asked.append((operation.name, resource.type.name, resource.name))
            return bool(resource.name != denied)

    asked: list[tuple[str, str, str]] = []
    async with rig.coordinating():
        context = Denied(rig.host.context(5).peer, 5, "client", 1)
        assert await commit(rig, 5, ("t", {0: 5}), context=context) == {("t", 0): expected}
    needed = [("WRITE", "TRANSACTIONAL_ID", "x"), ("READ", "GROUP", "g")]
    assert asked == (needed[:1] if denied == "x" else needed)
    assert rig.enlisting.asked == []
