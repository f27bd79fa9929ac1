"""A whole broker: offsets are committed with transactions, by old clients and by new ones."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from logfleet.node.broker import Broker
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    DeleteGroupsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)

from broker_image.tests.unit.node.broker_rig import ask_broker, create_topic, with_transactions

pytestmark = pytest.mark.asyncio

AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class Versions(NamedTuple):
    """What a client of one protocol sends. adds: it adds the group to the transaction itself."""

    init: int
    commit: int
    end: int
    adds: bool


TV1, TV2, WITH_IDS = Versions(4, 4, 4, True), Versions(5, 5, 5, False), Versions(5, 6, 5, False)


class Producer:
    """A transactional producer that commits offsets of group g for topic t."""

    def __init__(self, broker: Broker, versions: Versions) -> None:
        self.broker = broker
        self.versions = versions
        self.pair = (-1, -1)

    async def _ask(self, request: Any, version: int) -> Any:
        """The answer, once it is no passing error."""
        async with asyncio.timeout(10):
            while True:
                answer = await ask_broker(self.broker, request, version)
                if _error(answer) not in AGAIN:
                    return answer

    async def begin(self) -> None:
        for kind, key in ((0, "g"), (1, "x")):
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            async with asyncio.timeout(10):
                while (await ask_broker(self.broker, find, 4)).coordinators[0].error_code:
                    pass
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        answer = await self._ask(request, self.versions.init)
        assert not answer.error_code
        self.pair = (answer.producer_id, answer.producer_epoch)

    async def stage(self, offset: int) -> ErrorCode:
        if self.versions.adds:
            add = AddOffsetsToTxnRequest(
                transactional_id="x",
                group_id="g",
                producer_id=self.pair[0],
                producer_epoch=self.pair[1],
            )
            assert not (await self._ask(add, 3)).error_code
        return await self.stage_only(offset)

    async def stage_only(self, offset: int) -> ErrorCode:
        kind = TxnOffsetCommitRequest
        topic = self.broker.image.topic("t")
        assert topic is not None
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic.id,
                    partitions=[
                        kind.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        return _error(await self._ask(request, self.versions.commit))

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id="x",
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=commit,
        )
        answer = await self._ask(request, self.versions.end)
        assert not answer.error_code
        if not self.versions.adds:
            self.pair = (answer.producer_id, answer.producer_epoch)


def _error(answer: Any) -> ErrorCode:
    if hasattr(answer, "error_code"):
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def fetch(broker: Broker, *, stable: bool) -> ErrorCode | int:
    """What is committed for t-0, or an error."""
    kind = OffsetFetchRequest
    topic = kind.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = kind.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    async with asyncio.timeout(10):
        while True:
            (answer,) = (await ask_broker(broker, request, 8)).groups
            if answer.error_code not in AGAIN:
                (row,) = answer.topics[0].partitions
                return ErrorCode(row.error_code) or int(row.committed_offset)


async def fetch_when_stable(broker: Broker) -> list[int]:
    """All that is fetched until an offset is stable."""
    async with asyncio.timeout(10):
        while (found := await fetch(broker, stable=True)) is UNSTABLE:
            pass
    return [found]


@pytest.mark.parametrize("versions", [TV1, TV2, WITH_IDS], ids=["TV1", "TV2", "with topic ids"])
async def test_offsets_are_there_when_their_transaction_is_complete(
    tmp_path: Path, versions: Versions
) -> None:
    async with Broker(with_transactions(tmp_path)) as broker:
        await create_topic(broker, "t")
        producer = Producer(broker, versions)
        await producer.begin()
        assert await producer.stage(5) is ErrorCode.NONE
        assert await fetch(broker, stable=False) == -1
        assert await fetch(broker, stable=True) is UNSTABLE
        await producer.end(commit=True)
        assert await fetch_when_stable(broker) == [5], "never the offset before"
        for offset in range(6, 16):
            assert await producer.stage(offset) is ErrorCode.NONE
            is_commit = offset % 2 == 0
            await producer.end(commit=is_commit)
            assert await fetch_when_stable(broker) == [offset if is_commit else offset - 1]


async def test_a_transaction_goes_on_over_a_restart_between_staging_and_marker(
    tmp_path: Path,
) -> None:
    async with Broker(with_transactions(tmp_path)) as broker:
        await create_topic(broker, "t")
        producer = Producer(broker, TV2)
        await producer.begin()
        assert await producer.stage(5) is ErrorCode.NONE
    async with Broker(with_transactions(tmp_path)) as broker:
        assert await fetch(broker, stable=True) is UNSTABLE
        producer.broker = broker
        assert await producer.stage(6) is ErrorCode.NONE
        await producer.end(commit=True)
        assert await fetch_when_stable(broker) == [6]


async def test_offsets_behind_the_end_of_their_transaction_are_refused(tmp_path: Path) -> None:
    """They would be unstable for ever (KIP-890)."""
    async with Broker(with_transactions(tmp_path)) as broker:
        await create_topic(broker, "t")
        producer = Producer(broker, TV1)
        await producer.begin()
        assert await producer.stage(5) is ErrorCode.NONE
        await producer.end(commit=False)
        assert await fetch_when_stable(broker) == [-1]
        assert await producer.stage_only(6) is ErrorCode.TRANSACTION_ABORTABLE
        assert await fetch(broker, stable=True) == -1


async def test_a_group_that_is_deleted_before_the_marker_stays_away(tmp_path: Path) -> None:
    async with Broker(with_transactions(tmp_path)) as broker:
        await create_topic(broker, "t")
        producer = Producer(broker, TV2)
        await producer.begin()
        assert await producer.stage(5) is ErrorCode.NONE
        deleted = await ask_broker(broker, DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.NONE
        assert await fetch(broker, stable=True) == -1
        await producer.end(commit=True)
        assert await producer.stage(6) is ErrorCode.NONE
        await producer.end(commit=False)
        assert await fetch_when_stable(broker) == [-1]
