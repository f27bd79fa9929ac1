import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.io import slices
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.node.handlers.producer_ids import init_producer_id
from logfleet.node.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from logfleet.transactions.state import TopicPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.handlers.groups_rig import GroupsRig
from broker_image.tests.unit.node.transactions.transactions_rig import (
    FIRST_PRODUCER_ID,
    TransactionsRig,
)

pytestmark = pytest.mark.asyncio

PID = FIRST_PRODUCER_ID
CLIENTS, BROKERS = 3, 5
"""Versions of AddPartitionsToTxn."""
TV1, TV2 = 4, 5
"""Versions of EndTxn."""
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


@pytest.fixture
def rig(host: Host, tmp_path: Any) -> TransactionsRig:
    GroupsRig(host, str(tmp_path / "groups"))
    made = TransactionsRig(host, str(tmp_path / "transactions"))
    host.know_topic("t", {0: 1, 1: 1})
    return made


async def answer(response: Any) -> Any:
    return await response if isinstance(response, Awaitable) else response


async def init(rig: TransactionsRig, transactional_id: str | None = "a", version: int = 5) -> Any:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    return await answer(init_producer_id(rig.host, request, rig.host.context(version)))


def topics_of(topics: Mapping[str, list[int]]) -> list[Topic]:
    return [Topic(name=name, partitions=each) for name, each in topics.items()]


def add(
    rig: TransactionsRig,
    topics: Mapping[str, list[int]] | None = None,
    *,
    epoch: int = 0,
    version: int = CLIENTS,
) -> Any:
    """topics: with the indexes of partitions; t-0 if they are not given."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="a",
        v3_and_below_producer_id=PID,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics_of(topics or {"t": [0]}),
    )
    return add_partitions_to_txn(rig.host, request, rig.host.context(version))


def added(response: AddPartitionsToTxnResponse) -> dict[str, ErrorCode]:
    return {
        f"{topic.name}-{row.partition_index}": ErrorCode(row.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def end(rig: TransactionsRig, *, epoch: int = 0, version: int = TV2, committed: bool = True) -> Any:
    request = EndTxnRequest(
        transactional_id="a", producer_id=PID, producer_epoch=epoch, committed=committed
    )
    return end_txn(rig.host, request, rig.host.context(version))


async def test_a_producer_gets_an_id_and_with_each_start_another_epoch(
    rig: TransactionsRig,
) -> None:
    async with rig.coordinating():
        first, second = await init(rig), await init(rig)
        assert (first.error_code, first.producer_id, first.producer_epoch) == (0, PID, 0)
        assert (second.error_code, second.producer_id, second.producer_epoch) == (0, PID, 1)


async def test_without_producer_ids_the_client_tries_again(rig: TransactionsRig) -> None:
    async with rig.coordinating():
        rig.ids_left = False
        found = await init(rig)
        assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (found.producer_id, found.producer_epoch) == (-1, -1)


async def test_below_their_level_there_are_no_transactions(rig: TransactionsRig) -> None:
    """The Java client and librdkafka give up at this error, and do not retry for ever."""
    rig.host.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS - 1))
    async with rig.coordinating():
        refused = await init(rig)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await init(rig, "")).error_code == ErrorCode.INVALID_REQUEST


async def test_another_coordinator_is_to_be_asked(rig: TransactionsRig) -> None:
    assert (await init(rig)).error_code == ErrorCode.NOT_COORDINATOR
    assert added(await answer(add(rig))) == {"t-0": ErrorCode.NOT_COORDINATOR}
    assert (await answer(end(rig))).error_code == ErrorCode.NOT_COORDINATOR
    rig.lead()  # nothing runs, so it is never loaded
    assert (await init(rig)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = await answer(
        list_transactions(rig.host, ListTransactionsRequest(), rig.host.context(2))
    )
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_partition_is_added_and_the_commit_reaches_it_as_a_marker(
    rig: TransactionsRig,
) -> None:
    async with rig.coordinating():
        await init(rig)
        assert added(await answer(add(rig, {"t": [0, 1]}))) == {"t-0": 0, "t-1": 0}
        done = await answer(end(rig))
        assert (done.error_code, done.producer_id, done.producer_epoch) == (0, PID, 1)
        busy = await answer(add(rig, epoch=1))
        assert added(busy) == {"t-0": ErrorCode.CONCURRENT_TRANSACTIONS}
        (markers,) = rig.write_markers()
        assert markers.is_commit
        assert markers.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
        assert added(await answer(add(rig, epoch=1))) == {"t-0": 0}


async def test_what_the_partition_cannot_take_keeps_the_others_out(rig: TransactionsRig) -> None:
    """KafkaApis: any partition that is refused fails the whole transaction of the request."""
    async with rig.coordinating():
        await init(rig)
        assert added(await answer(add(rig, {"t": [0, 2], "unknown": [0]}))) == {
            "t-0": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "t-2": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "unknown-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await answer(end(rig, version=TV1))).error_code == ErrorCode.INVALID_TXN_STATE


async def test_clients_add_no_internal_topics(rig: TransactionsRig) -> None:
    async with rig.coordinating():
        await init(rig)
        rig.host.know_topic(OFFSETS_TOPIC, {0: 1})
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = added(await answer(add(rig, {OFFSETS_TOPIC: [0]})))
        assert found == {f"{OFFSETS_TOPIC}-0": refused}


@pytest.mark.parametrize(
    "version, error", [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
async def test_a_fenced_producer_gets_the_error_that_its_version_has(
    rig: TransactionsRig, version: int, error: ErrorCode
) -> None:
    async with rig.coordinating():
        await init(rig)
        await init(rig)
        assert added(await answer(add(rig, version=version))) == {"t-0": error}
        offsets = AddOffsetsToTxnRequest(
            transactional_id="a", producer_id=PID, producer_epoch=0, group_id="g"
        )
        answered = add_offsets_to_txn(rig.host, offsets, rig.host.context(version))
        assert (await answer(answered)).error_code == error
        assert (await answer(end(rig, version=version))).error_code == error


async def test_brokers_ask_about_many_transactions_each_is_judged_by_itself(
    rig: TransactionsRig,
) -> None:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    async with rig.coordinating():
        await init(rig, "a")
        await init(rig, "b")
        request = AddPartitionsToTxnRequest(
            transactions=[
                kind(
                    transactional_id="a",
                    producer_id=PID,
                    producer_epoch=0,
                    verify_only=True,
                    topics=topics_of({"t": [0]}),
                ),
                kind(
                    transactional_id="b",
                    producer_id=PID + 1,
                    producer_epoch=0,
                    topics=topics_of({"t": [0, 1]}),
                ),
                kind(transactional_id="nobody", topics=topics_of({"t": [1]})),
            ]
        )
        context = rig.host.context(BROKERS)
        found = await answer(add_partitions_to_txn(rig.host, request, context))
        assert found.error_code == ErrorCode.NONE
        assert {
            each.transactional_id: [
                ErrorCode(row.partition_error_code)
                for topic in each.topic_results
                for row in topic.results_by_partition
            ]
            for each in found.results_by_transaction
        } == {
            "a": [ErrorCode.TRANSACTION_ABORTABLE],
            "b": [ErrorCode.NONE, ErrorCode.NONE],
            "nobody": [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        }
        assert added(await answer(add(rig))) == {"t-0": ErrorCode.NONE}
        again = await answer(add_partitions_to_txn(rig.host, request, context))
        (row,) = again.results_by_transaction[0].topic_results[0].results_by_partition
        assert row.partition_error_code == ErrorCode.NONE, "now it is in the transaction"


async def test_offsets_are_added_by_the_partition_of_their_group(rig: TransactionsRig) -> None:
    rig.host.know_topic(OFFSETS_TOPIC, {0: 1})
    async with rig.coordinating():
        await init(rig)
        request = AddOffsetsToTxnRequest(
            transactional_id="a", producer_id=PID, producer_epoch=0, group_id="g"
        )
        found = await answer(add_offsets_to_txn(rig.host, request, rig.host.context(4)))
        assert found.error_code == ErrorCode.NONE
        await answer(end(rig, committed=False))
        (markers,) = rig.write_markers()
        assert not markers.is_commit
        assert markers.partitions == {TopicPartition(OFFSETS_TOPIC, 0)}


@pytest.mark.parametrize("asked", [add, end])
async def test_an_answer_waits_until_followers_have_its_record(
    rig: TransactionsRig, asked: Callable[[TransactionsRig], Any]
) -> None:
    async with rig.coordinating() as partition:
        await init(rig)
        await answer(add(rig, {"t": [1]}))
        partition.lags = True
        waiting = asked(rig)
        assert isinstance(waiting, Awaitable)
        assert rig.due == [], "no marker before the decision is committed"
        partition.catch_up()
        found = await waiting
        assert errors_of(found) == {ErrorCode.NONE}
        assert len(rig.due) == (asked is end)


@pytest.mark.parametrize("asked", [add, end])
async def test_who_ceases_to_coordinate_sends_waiting_producers_elsewhere(
    rig: TransactionsRig, asked: Callable[[TransactionsRig], Any]
) -> None:
    async with rig.coordinating() as partition:
        await init(rig)
        await answer(add(rig, {"t": [1]}))
        partition.lags = True
        waiting = asked(rig)
        rig.lose(partition)
        assert errors_of(await waiting) == {ErrorCode.NOT_COORDINATOR}
        assert rig.due == []
        assert len(rig.closed) == 1


def errors_of(response: Any) -> set[ErrorCode]:
    if isinstance(response, AddPartitionsToTxnResponse):
        return set(added(response).values())
    return {ErrorCode(response.error_code)}


async def test_a_transaction_is_described_with_what_still_lacks_its_marker(
    rig: TransactionsRig,
) -> None:
    async def described(*ids: str) -> Mapping[str, Any]:
        request = DescribeTransactionsRequest(transactional_ids=list(ids))
        found = await answer(describe_transactions(rig.host, request, rig.host.context(0)))
        return {each.transactional_id: each for each in found.transaction_states}

    async with rig.coordinating() as partition:
        await init(rig)
        await answer(add(rig))
        found = await described("a", "nobody", "")
        row = found["a"]
        assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", PID, 0)
        assert row.transaction_start_time_ms == rig.clock.now_ms()
        assert [(topic.topic, topic.partitions) for topic in row.topics] == [("t", [0])]
        assert found["nobody"].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert found[""].error_code == ErrorCode.INVALID_REQUEST
        rig.lose(partition)
        assert (await described("a"))["a"].error_code == ErrorCode.NOT_COORDINATOR


async def test_many_transactions_are_described_in_steps_each_once(
    rig: TransactionsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one request could hold the loop for as long as it names ids."""
    monkeypatch.setattr(slices, "SLICE_S", 0)
    names = ["a", "b", "c"] * 10
    async with rig.coordinating():
        request = DescribeTransactionsRequest(transactional_ids=names)
        asked = describe_transactions(rig.host, request, rig.host.context(0))
        described, turns = asyncio.ensure_future(asked), 0
        while not described.done():
            await asyncio.sleep(0)
            turns += 1
        rows = described.result().transaction_states
        assert [row.transactional_id for row in rows] == ["a", "b", "c"]
        assert turns >= 2 * len(rows)


async def test_transactions_are_listed_and_filtered(rig: TransactionsRig) -> None:
    async def listed(**filters: Any) -> Any:
        request = ListTransactionsRequest(**filters)
        return await answer(list_transactions(rig.host, request, rig.host.context(2)))

    async with rig.coordinating():
        await init(rig, "a")
        await init(rig, "b")
        await answer(add(rig))
        found = await listed()
        rows = {
            (each.transactional_id, each.transaction_state) for each in found.transaction_states
        }
        assert rows == {("a", "Ongoing"), ("b", "Empty")}
        found = await listed(state_filters=["Ongoing", "Resting"])
        assert [each.producer_id for each in found.transaction_states] == [PID]
        assert found.unknown_state_filters == ["Resting"]
        found = await listed(transactional_id_pattern="[b-z]")
        assert [each.transactional_id for each in found.transaction_states] == ["b"]
        found = await listed(transactional_id_pattern="(")
        assert found.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert found.transaction_states == []


async def test_a_list_that_is_not_certain_yet_waits(rig: TransactionsRig) -> None:
    async with rig.coordinating() as partition:
        await init(rig)
        partition.lags = True
        adding = add(rig)
        request = ListTransactionsRequest()
        listing = list_transactions(rig.host, request, rig.host.context(2))
        rig.lose(partition)
        assert isinstance(listing, Awaitable)
        assert (await listing).transaction_states == [], "the next coordinator lists them"
        assert errors_of(await adding) == {ErrorCode.NOT_COORDINATOR}
