"""The APIs of transactional producers, and of those who inspect transactions.

AddPartitionsToTxn, AddOffsetsToTxn, EndTxn; DescribeTransactions, ListTransactions.
`logfleet.transactions` has the rules; here are the differences between versions, what the image and
the authorizer decide, and the lookup of the coordinator. InitProducerId is in `producer_ids`.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Final

from logfleet.auth.operations import CLUSTER, Operation, Resource, ResourceType
from logfleet.io.slices import Slices
from logfleet.metadata.kinds.topics import INTERNAL_TOPICS
from logfleet.node.coordinators.waiter import Waiter, all_arrived, when_all
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.transactions.additions import (
    Asked,
    PartitionErrors,
    addition_of,
    missing,
    topic_results,
)
from logfleet.node.transactions.transaction_shard import TransactionShard
from logfleet.transactions.adding import Addition, refused_rows
from logfleet.transactions.answers import known_to_version
from logfleet.transactions.ending import FENCED_SINCE
from logfleet.transactions.listing import Wanted, wanted_by
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

FROM_BROKERS_SINCE: Final = 4
"""Since this version AddPartitionsToTxn has many transactions, and comes from brokers (KIP-890)."""

_Described = DescribeTransactionsResponse.TransactionState
_Listed = ListTransactionsResponse.TransactionState


def may(operation: Operation, transactional_id: str, context: RequestContext) -> bool:
    """Whether the client may do that with this transactional id."""
    return context.may(operation, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))


def add_partitions_to_txn(
    rooms: Rooms, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Add partitions to transactions, or verify that they are in them.

    A client names one transaction. A broker names all that wait for this coordinator: each is
    judged by itself, and the answer waits for all. Source:
    KafkaApis.handleAddPartitionsToTxnRequest.
    """
    if context.api_version < FROM_BROKERS_SINCE:
        return _add_for_client(rooms, request, context)
    if not context.may(Operation.CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return when_all(
        [rooms.transactions.coordinators.add_for_broker(each) for each in request.transactions],
        lambda outcomes: _added(request.transactions, outcomes),
        context.peer,
        ErrorCode.NOT_COORDINATOR,
    )


def _added(
    transactions: Sequence[Asked], outcomes: Sequence[PartitionErrors]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=topic_results(asked, outcome),
            )
            for asked, outcome in zip(transactions, outcomes, strict=True)
        ]
    )


def _add_for_client(
    rooms: Rooms, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    asked = Asked(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def answer(outcome: PartitionErrors) -> AddPartitionsToTxnResponse:
        if isinstance(outcome, ErrorCode):
            outcome = known_to_version(outcome, context.api_version, FENCED_SINCE)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=topic_results(asked, outcome)
        )

    def refusal(partition: TopicPartition) -> ErrorCode:
        # only brokers write to internal topics
        if partition.topic in INTERNAL_TOPICS or not context.may(
            Operation.WRITE, Resource(ResourceType.TOPIC, partition.topic)
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return missing(rooms.metadata.image, partition)

    if not may(Operation.WRITE, asked.transactional_id, context):
        return answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    addition = addition_of(asked, client_version=0)
    refused = refused_rows(addition.partitions, refusal)
    if refused:
        return answer(refused)
    waiter = rooms.transactions.coordinators.add(addition)
    return waiter.mapped(answer, context.peer, ErrorCode.NOT_COORDINATOR)


def add_offsets_to_txn(
    rooms: Rooms, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    """Add the partition of the offsets topic that has the group's offsets.

    Source: KafkaApis.handleAddOffsetsToTxnRequest.
    """

    def answer(error: PartitionErrors) -> AddOffsetsToTxnResponse:
        assert isinstance(error, ErrorCode), "it is for all that is added"
        error = known_to_version(error, context.api_version, FENCED_SINCE)
        return AddOffsetsToTxnResponse(error_code=error)

    if not may(Operation.WRITE, request.transactional_id, context):
        return answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return answer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topic = rooms.coordinators.topic
    index = topic.partition_of(request.group_id, rooms.metadata.image)
    addition = Addition(
        request.transactional_id,
        request.producer_id,
        ProducerEpoch(request.producer_epoch),
        frozenset({TopicPartition(topic.name, index)}),
    )
    waiter = rooms.transactions.coordinators.add(addition)
    return waiter.mapped(answer, context.peer, ErrorCode.NOT_COORDINATOR)


def end_txn(
    rooms: Rooms, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    """Commit or abort: answered when the decision is committed, before the markers are written."""

    def refused(error: ErrorCode) -> EndTxnResponse:
        return EndTxnResponse(error_code=error)

    if not may(Operation.WRITE, request.transactional_id, context):
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    version = context.api_version
    waiter = rooms.transactions.coordinators.ask(
        request.transactional_id,
        lambda coordinator, turn, waiter: coordinator.end(turn, request, version, waiter),
        refused,
    )
    return waiter.result(context.peer, refused(ErrorCode.NOT_COORDINATOR))


async def describe_transactions(
    rooms: Rooms, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each id once, with the partitions that the client may describe (KIP-664)."""
    waiters, slices = [], Slices()
    for transactional_id in dict.fromkeys(request.transactional_ids):
        waiters.append(_describe(rooms, transactional_id, context))
        await slices.pause_if_due()
    rows = []
    for described in await all_arrived(waiters, context.peer, []):
        for row in described:
            row.topics = [
                each
                for each in row.topics
                if context.may(Operation.DESCRIBE, Resource(ResourceType.TOPIC, each.topic))
            ]
            rows.append(row)
        await slices.pause_if_due()
    return DescribeTransactionsResponse(transaction_states=rows)


def _describe(
    rooms: Rooms, transactional_id: str, context: RequestContext
) -> Waiter[list[_Described]]:
    def refused(error: ErrorCode) -> list[_Described]:
        return [_Described(transactional_id=transactional_id, error_code=error)]

    if not may(Operation.DESCRIBE, transactional_id, context):
        waiter = Waiter[list[_Described]]()
        waiter.answer(refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return waiter
    return rooms.transactions.coordinators.ask(
        transactional_id,
        lambda coordinator, turn, waiter: coordinator.describe(turn, [transactional_id], waiter),
        refused,
    )


def list_transactions(
    rooms: Rooms, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse]:
    """The transactional ids that this broker coordinates and the client may describe.

    An error while any are being loaded: a list without these would look as if they had expired.
    """
    wanted = wanted_by(request)
    if isinstance(wanted, ErrorCode):
        return ListTransactionsResponse(error_code=wanted)
    shards = [each for each in rooms.transactions.coordinators.shards() if not each.is_closed]
    if not all(shard.is_loaded for shard in shards):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _list(rooms, shards, wanted, context)


async def _list(
    rooms: Rooms, shards: Sequence[TransactionShard], wanted: Wanted, context: RequestContext
) -> ListTransactionsResponse:
    found: list[list[_Listed]] = []
    settled: list[Waiter[ErrorCode]] = []
    slices = Slices()
    for shard in shards:
        listed = []
        for row in shard.coordinator.listed(wanted, rooms.clock.now_ms()):
            if row is not None and may(Operation.DESCRIBE, row.transactional_id, context):
                listed.append(row)
            await slices.pause_if_due()
        found.append(listed)
        waiter = Waiter[ErrorCode]()
        turn = shard.turn()
        shard.coordinator.settle(turn, waiter)
        shard.execute(turn)
        settled.append(waiter)
    errors = await all_arrived(settled, context.peer, ErrorCode.NOT_COORDINATOR)
    rows: list[_Listed] = []
    for listed, error in zip(found, errors, strict=True):
        if error is ErrorCode.NONE:
            rows += listed
        elif error is not ErrorCode.NOT_COORDINATOR:  # else another broker lists them
            return ListTransactionsResponse(error_code=error)
    return ListTransactionsResponse(
        unknown_state_filters=list(wanted.unknown_states), transaction_states=rows
    )


HANDLERS: dict[type, Handler[Any]] = {
    AddPartitionsToTxnRequest: add_partitions_to_txn,
    AddOffsetsToTxnRequest: add_offsets_to_txn,
    EndTxnRequest: end_txn,
    DescribeTransactionsRequest: describe_transactions,
    ListTransactionsRequest: list_transactions,
}
