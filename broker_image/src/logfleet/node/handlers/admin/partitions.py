"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from collections.abc import Sequence
from typing import Final

import msgspec

from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.election_writes import (
    NO_LOG_ENDS,
    LogEndsByPartition,
    PartitionId,
    elect,
    replicas_to_ask,
)
from logfleet.controller.changes.reassignment_requests import reassign, reassigning
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.access import ControllerAccess, ControllerWork
from logfleet.controller.terms.operations import Operation, TermDecision
from logfleet.io.slices import Slices
from logfleet.metadata.image import Broker, ClusterImage
from logfleet.metadata.packing import Step
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.replication.reassignment_steps import is_reassigning, target
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from logfleet.wire.refusal import Refusal

# Kafka: ElectionType
PREFERRED: Final = 0
UNCLEAN: Final = 1
ELECTION_CAUSE: Final = "ElectLeaders requests it"
REASSIGNMENT_CAUSE: Final = "AlterPartitionReassignments requests it"

_Election = ElectLeadersResponse.ReplicaElectionResult
_Elected = ElectLeadersResponse.PartitionResult
_Moves = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Moved = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
_OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
_TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "The partition is named twice.")


# --- ElectLeaders (KIP-460)


async def _elect(
    access: ControllerAccess, request: ElectLeadersRequest, version: int
) -> ElectLeadersResponse:
    """Elect leaders; if all topics are requested, return only partitions that needed it."""
    if request.election_type not in {PREFERRED, UNCLEAN}:
        message = f"Unknown election type {request.election_type}"
        return _refuse_election(request, version, Refusal(ErrorCode.INVALID_REQUEST, message))
    unclean = request.election_type == UNCLEAN
    asked: list[tuple[str, Sequence[int] | None]]
    if request.topic_partitions is None:
        asked = [(topic.name, None) for topic in access.image.topics()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    answered = await _log_ends(access, asked) if unclean else NO_LOG_ENDS
    results = []
    for name, indexes in asked:
        operation = _election(name, indexes, unclean=unclean, answered=answered)
        rows = await access.controller.submit(operation)
        if isinstance(rows, Refusal):
            rows = [_elected(index, rows) for index in indexes or ()]
        if indexes is None:
            rows = [row for row in rows if row.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(_Election(topic=name, partition_result=rows))
    return ElectLeadersResponse(replica_election_results=results)


async def _log_ends(
    access: ControllerAccess, wanted: Sequence[tuple[str, Sequence[int] | None]]
) -> LogEndsByPartition:
    """The log ends of leaderless partitions for which several replicas could lead."""
    image, slices = access.image, Slices()
    asked: dict[PartitionId, Sequence[Broker]] = {}
    for name, indexes in wanted:
        topic = image.topic(name)
        if topic is not None:
            found = replicas_to_ask(image, topic, access.layers, unclean=True)
            asked |= {each: found[each] for each in found if indexes is None or each[1] in indexes}
        await slices.pause_if_due()
    return await access.controller.query_log_ends(image, asked) if asked else NO_LOG_ENDS


def _election(
    name: str, indexes: Sequence[int] | None, *, unclean: bool, answered: LogEndsByPartition
) -> Operation[list[_Elected]]:
    """The operation for one topic. indexes: None for all partitions."""
    begun: set[int] = set()

    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[list[_Elected]]:
        topic = image.topic(name)
        steps, rows = [], []
        all_there_are = range(len(topic.partitions) if topic else 0)
        for index in all_there_are if indexes is None else indexes:
            if topic is None:
                answer: Step | Refusal = _unknown(f"No such topic as {name}")
            elif index not in all_there_are:
                answer = _unknown(f"No such partition as {name}-{index}")
            else:
                answer = elect(image, topic, index, unclean=unclean, answered=answered)
            if isinstance(answer, Step):
                steps.append(answer)
                begun.add(index)
            elif answer.error is not ErrorCode.ELECTION_NOT_NEEDED or index not in begun:
                rows.append(_elected(index, answer))
                continue
            rows.append(_Elected(partition_id=index, error_message=None))
        return TermDecision(pack(epoch, steps), rows, ELECTION_CAUSE, in_any_order=True)

    return decide


def _refuse_election(
    request: ElectLeadersRequest, version: int, refusal: Refusal
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        # Version 0 has errors only in its rows (Kafka: ElectLeadersResponse).
        error_code=refusal.error if version else ErrorCode.NONE,
        replica_election_results=[
            _Election(
                topic=topic.topic,
                partition_result=[_elected(index, refusal) for index in topic.partitions],
            )
            for topic in request.topic_partitions or []
        ],
    )


def _election_is_shown(
    image: ClusterImage, request: ElectLeadersRequest, answer: ElectLeadersResponse
) -> bool:
    preferred = request.election_type == PREFERRED
    for result in answer.replica_election_results:
        topic = image.topic(result.topic)
        elected = [row.partition_id for row in result.partition_result if not row.error_code]
        for partition in (topic.partitions[index] for index in elected if topic is not None):
            if not partition.has_leader or (
                preferred and partition.leader != partition.replicas[0]
            ):
                return False
    return True


def _unknown(message: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _elected(index: int, refusal: Refusal) -> _Elected:
    return _Elected(partition_id=index, error_code=refusal.error, error_message=refusal.message)


ELECT: Final = ControllerWork(
    _elect, _refuse_election, lambda request: request.timeout_ms, _election_is_shown
)


# --- AlterPartitionReassignments, ListPartitionReassignments (KIP-455)


async def _reassign(
    access: ControllerAccess, request: AlterPartitionReassignmentsRequest, _version: int
) -> AlterPartitionReassignmentsResponse:
    rows = await access.controller.submit(_reassignment(request))
    if isinstance(rows, Refusal):
        return _refuse_reassignment(request, 0, rows)
    return _reassigned(request, rows)


def _reassignment(request: AlterPartitionReassignmentsRequest) -> Operation[list[_Moves]]:
    """The operation that decides the whole request at once.

    begun: moves that an earlier attempt may have written already: cancelling these again is no
    error.
    """
    begun: set[tuple[str, int]] = set()

    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[list[_Moves]]:
        steps: list[Step] = []
        named: set[tuple[str, int]] = set()
        moves = []
        for topic in request.topics:
            rows = []
            for wanted in topic.partitions:
                place = topic.name, wanted.partition_index
                answer = (
                    _TWICE
                    if place in named
                    else reassign(
                        image,
                        *place,
                        wanted.replicas,
                        may_change_factor=request.allow_replication_factor_change,
                    )
                )
                named.add(place)
                if isinstance(answer, Step):
                    steps.append(answer)
                    begun.add(place)
                is_done = place in begun and wanted.replicas is None
                refusal = answer if isinstance(answer, Refusal) and not is_done else None
                rows.append(_moved(wanted.partition_index, refusal))
            moves.append(_Moves(name=topic.name, partitions=rows))
        return TermDecision(pack(epoch, steps), moves, REASSIGNMENT_CAUSE, in_any_order=True)

    return decide


def _refuse_reassignment(
    request: AlterPartitionReassignmentsRequest, _version: int, refusal: Refusal
) -> AlterPartitionReassignmentsResponse:
    answer = _reassigned(request, [])
    return msgspec.structs.replace(
        answer, error_code=refusal.error, error_message=refusal.message or None
    )


def _reassigned(
    request: AlterPartitionReassignmentsRequest, rows: list[_Moves]
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if rows else "",
        responses=rows,
    )


def _moved(index: int, refusal: Refusal | None) -> _Moved:
    if refusal is None:
        return _Moved(partition_index=index, error_message=None)
    return _Moved(
        partition_index=index, error_code=refusal.error, error_message=refusal.message or None
    )


def _reassignment_is_shown(
    image: ClusterImage,
    request: AlterPartitionReassignmentsRequest,
    answer: AlterPartitionReassignmentsResponse,
) -> bool:
    for requested, moved in zip(request.topics, answer.responses, strict=False):
        topic = image.topic(requested.name)
        if topic is None:
            continue
        for wanted, row in zip(requested.partitions, moved.partitions, strict=True):
            if row.error_code:
                continue
            state = image.partition(topic.id, wanted.partition_index)
            if state is None:
                continue  # the name is another topic's by now
            is_there = (
                not is_reassigning(state)
                if wanted.replicas is None
                else target(state) == tuple(wanted.replicas)
            )
            if not is_there:
                return False
    return True


REASSIGN: Final = ControllerWork(
    _reassign, _refuse_reassignment, lambda request: request.timeout_ms, _reassignment_is_shown
)


async def list_partition_reassignments(
    rooms: Rooms, request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Answers from this broker's image, which contains every change that it has confirmed."""
    slices = Slices()
    image = rooms.metadata.image
    asked: dict[str, frozenset[int]] | None = None
    if request.topics is not None:
        asked = {each.name: frozenset(each.partition_indexes) for each in request.topics}
    topics = []
    for topic in image.topics():
        if asked is not None and topic.name not in asked:
            continue
        await slices.pause_if_due()
        rows = [
            _Ongoing(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
            for index, state in reassigning(topic)
            if asked is None or index in asked[topic.name]
        ]
        if rows:
            topics.append(_OngoingTopic(name=topic.name, partitions=rows))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
