"""CreateTopics, DeleteTopics and CreatePartitions, done by the controller topic by topic.

Checks of whole requests follow Kafka's ControllerApis; `logfleet.controller.changes.topics` checks
topics.

A controller that is replaced in the middle of a request answers for the topics that are done, and
refuses the rest with the retriable REQUEST_TIMED_OUT. A client that retries the rest applies
nothing twice: a topic that was refused like that has not changed, because the last write of each
topic's operation makes it visible, all its writes compare the controller's epoch, and a write
without an answer is settled before the topic is answered (`Term.finish`). The code is not
NOT_CONTROLLER, as Kafka's clients retry the whole request if any topic has that one, and would then
report topics that they created as existing already.
"""

import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from logfleet.config.description import describe_new_topic
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.topics import (
    NewPartitions,
    NewTopic,
    TopicCreation,
    create_partitions,
    create_topic,
    delete_topic,
    refuse_request,
    unknown_topic,
)
from logfleet.controller.running.access import ControllerAccess, ControllerWork, Origin
from logfleet.controller.terms.operations import NotControllerError, Operation, TermDecision
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.quotas.client_quotas import MutationBudget
from logfleet.wire import uuids
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from logfleet.wire.refusal import Refusal

T = TypeVar("T")

_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
_Deletion = DeleteTopicsRequest.DeleteTopicState

DELETION_BY_ID_SINCE: Final = 6
DELETION_DISABLED_SINCE: Final = 3
# Since these versions clients understand THROTTLING_QUOTA_EXCEEDED; others are only made to wait
# (KIP-599).
CREATION_STRICT_SINCE: Final = 6
DELETION_STRICT_SINCE: Final = 5
GROWTH_STRICT_SINCE: Final = 3
DUPLICATE_NAME: Final = "Duplicate topic name."
NAMED_BY_ID_TOO: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
)
NOT_REACHED: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "The controller was replaced before it reached this topic, which has not changed: retry it.",
)


class _Decided(msgspec.Struct, frozen=True):
    """A topic as created, and the layers that describe its configs."""

    creation: TopicCreation
    layers: BrokerLayers


def _charged(
    operation: Operation[T], budget: MutationBudget | None, permits: Callable[[T], int]
) -> Operation[T]:
    """The operation, refused if the client's quota is used up.

    It is charged once, however often it has to be decided. permits: the price by its answer.
    """
    if budget is None:
        return operation
    paid = False

    def decide(image: ClusterImage, epoch: int, layers: BrokerLayers) -> TermDecision[T] | Refusal:
        nonlocal paid
        decision = operation(image, epoch, layers)
        if not isinstance(decision, Refusal):
            paid = paid or budget.take(permits(decision.answer))
            if not paid:
                return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "")
        return decision

    return decide


async def _submit(access: ControllerAccess, operation: Operation[T], *, later: bool) -> T | Refusal:
    """Decide one topic. Raises NotControllerError: no topic has changed, send it all again.

    later: other topics of the request are answered already: return NOT_REACHED instead.
    """
    try:
        return await access.controller.submit(operation)
    except NotControllerError:
        if not later:
            raise
        return NOT_REACHED


# --- CreateTopics


async def _create(
    access: ControllerAccess,
    request: CreateTopicsRequest,
    version: int,
    budget: MutationBudget | None = None,
) -> CreateTopicsResponse:
    names = Counter(topic.name for topic in request.topics)
    topics = {topic.name: _new(topic) for topic in request.topics}
    refusal = refuse_request(topics.values(), access.layers)
    if refusal is not None:
        return _refuse_creation(request, version, refusal)
    results = []
    for topic in topics.values():
        if names[topic.name] > 1:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, DUPLICATE_NAME)
            results.append(_not_created(topic.name, refusal))
            continue
        creation = _creation(topic, validate_only=request.validate_only)
        operation = _charged(creation, budget, lambda decided: decided.creation.partitions)
        answer = await _submit(access, operation, later=bool(results))
        if isinstance(answer, Refusal):
            results.append(_not_created(topic.name, answer))
        else:
            results.append(_created(topic.name, answer))
    return CreateTopicsResponse(topics=results)


def _new(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        new_topic_id(),
        random.getrandbits(31),
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        {config.name: config.value for config in topic.configs},
    )


def new_topic_id() -> bytes:
    """16 random bytes that Kafka's tools accept as a topic id."""
    while not uuids.usable_as_id(topic_id := uuid.uuid4().bytes):
        pass
    return topic_id


def _creation(new: NewTopic, *, validate_only: bool) -> Operation[_Decided]:
    def decide(
        image: ClusterImage, epoch: int, layers: BrokerLayers
    ) -> TermDecision[_Decided] | Refusal:
        creation = create_topic(image, epoch, new, layers)
        if isinstance(creation, Refusal):
            return creation
        return TermDecision(() if validate_only else creation.txns, _Decided(creation, layers))

    return decide


def _created(name: str, decided: _Decided) -> _Created:
    creation = decided.creation
    return _Created(
        name=name,
        topic_id=creation.id,
        error_message=None,
        num_partitions=creation.partitions,
        replication_factor=creation.replication_factor,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.is_read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in describe_new_topic(creation.configs, decided.layers)
        ],
    )


def _not_created(name: str, refusal: Refusal) -> _Created:
    return _Created(
        name=name,
        error_code=refusal.error,
        error_message=refusal.message or None,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def _refuse_creation(
    request: CreateTopicsRequest, _version: int, refusal: Refusal
) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_not_created(name, refusal) for name in names])


def _creation_is_shown(
    image: ClusterImage, request: CreateTopicsRequest, answer: CreateTopicsResponse
) -> bool:
    return request.validate_only or all(
        topic.error_code or image.topic(topic.name) is not None for topic in answer.topics
    )


CREATE: Final = ControllerWork(
    _create,
    _refuse_creation,
    lambda request: request.timeout_ms,
    _creation_is_shown,
    _create,
    CREATION_STRICT_SINCE,
)


async def create_one(
    access: ControllerAccess,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    *,
    cause: Origin | None = None,
) -> Refusal | None:
    """Create a topic through the controller, wherever it is; None once it exists.

    -1 stands for a default. cause: the request of another kind for which it is created: the
    client's quota of changes applies (KIP-599). None: the broker needs it.
    """
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    timeout_ms = access.config.request_timeout_ms
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    version = api_of(CreateTopicsRequest).max_version
    origin = msgspec.structs.replace(cause or Origin(version), version=version)
    answer = await access.perform(CREATE, request, origin)
    assert isinstance(answer, CreateTopicsResponse)
    (result,) = answer.topics
    if result.error_code:
        return Refusal(ErrorCode(result.error_code), result.error_message or "")
    return None


# --- DeleteTopics


async def _delete(
    access: ControllerAccess,
    request: DeleteTopicsRequest,
    version: int,
    budget: MutationBudget | None = None,
) -> DeleteTopicsResponse:
    wanted = _deletions(request, version)
    if not access.config.delete_topic_enable:
        disabled = version >= DELETION_DISABLED_SINCE
        error = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        return _refuse_deletion(request, version, Refusal(error, "Topic deletion is disabled."))
    both = _named_both_ways(access.image, wanted)
    results = [_not_deleted(each, NAMED_BY_ID_TOO) for each in both]
    taken = {each.name for each in both}, {each.topic_id for each in both}
    counts = Counter((each.name, each.topic_id) for each in wanted)
    for each in {(each.name, each.topic_id): each for each in wanted}.values():
        answer: Refusal | Topic | None = _refuse_one_deletion(
            each, counts[each.name, each.topic_id]
        )
        if answer is None and (each.name in taken[0] or each.topic_id in taken[1]):
            continue
        if answer is None:
            operation = _charged(_deletion(each), budget, lambda topic: len(topic.partitions))
            answer = await _submit(access, operation, later=bool(results))
        if isinstance(answer, Refusal):
            results.append(_not_deleted(each, answer))
        else:
            results.append(_Deleted(name=answer.name, topic_id=answer.id))
    return DeleteTopicsResponse(responses=results)


def _deletions(request: DeleteTopicsRequest, version: int) -> list[_Deletion]:
    if version >= DELETION_BY_ID_SINCE:
        return request.topics
    return [_Deletion(name=name) for name in request.topic_names]


def _named_both_ways(image: ClusterImage, wanted: list[_Deletion]) -> list[_Deletion]:
    """Topics that the request names once by name and also by id; each with both.

    Source: ControllerApis.deleteTopics.
    """
    names = Counter(each.name for each in wanted if each.topic_id == uuids.ZERO_UUID)
    ids = {each.topic_id for each in wanted if each.name is None}
    found = (image.topic(name) for name, times in names.items() if name is not None and times == 1)
    return [
        _Deletion(name=topic.name, topic_id=topic.id)
        for topic in found
        if topic is not None and topic.id in ids
    ]


def _refuse_one_deletion(wanted: _Deletion, times: int) -> Refusal | None:
    has_id = wanted.topic_id != uuids.ZERO_UUID
    problem = None
    if wanted.name is None and not has_id:
        problem = "Neither topic name nor id were specified."
    elif wanted.name is not None and has_id:
        problem = "You may not specify both topic name and topic id."
    elif times > 1:
        problem = "Duplicate topic id." if has_id else DUPLICATE_NAME
    return Refusal(ErrorCode.INVALID_REQUEST, problem) if problem else None


def _deletion(wanted: _Deletion) -> Operation[Topic]:
    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[Topic] | Refusal:
        if wanted.name is not None:
            topic = image.topic(wanted.name)
            if topic is None:
                return unknown_topic()
        else:
            topic = image.topic_by_id(wanted.topic_id)
            if topic is None:
                return Refusal(
                    ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
                )
        return TermDecision((delete_topic(epoch, topic),), topic)

    return decide


def _not_deleted(wanted: _Deletion, refusal: Refusal) -> _Deleted:
    return _Deleted(
        name=wanted.name,
        topic_id=wanted.topic_id,
        error_code=refusal.error,
        error_message=refusal.message or None,
    )


def _refuse_deletion(
    request: DeleteTopicsRequest, version: int, refusal: Refusal
) -> DeleteTopicsResponse:
    rows = [_not_deleted(each, refusal) for each in _deletions(request, version)]
    return DeleteTopicsResponse(responses=rows)


def _deletion_is_shown(
    image: ClusterImage, _request: DeleteTopicsRequest, answer: DeleteTopicsResponse
) -> bool:
    return all(
        topic.error_code or image.topic_by_id(topic.topic_id) is None for topic in answer.responses
    )


DELETE: Final = ControllerWork(
    _delete,
    _refuse_deletion,
    lambda request: request.timeout_ms,
    _deletion_is_shown,
    _delete,
    DELETION_STRICT_SINCE,
)


# --- CreatePartitions


async def _grow(
    access: ControllerAccess,
    request: CreatePartitionsRequest,
    _version: int,
    budget: MutationBudget | None = None,
) -> CreatePartitionsResponse:
    names = Counter(topic.name for topic in request.topics)
    results: list[_Grown] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        if names[topic.name] > 1:
            answer: Refusal | int = Refusal(ErrorCode.INVALID_REQUEST, DUPLICATE_NAME)
        else:
            assignments = topic.assignments
            new = NewPartitions(
                topic.name,
                topic.count,
                random.getrandbits(31),
                None if assignments is None else tuple(tuple(a.broker_ids) for a in assignments),
            )
            growth = _growth(new, validate_only=request.validate_only)
            operation = _charged(growth, budget, lambda added: added)
            grown = await _submit(access, operation, later=bool(results))
            answer = grown  # two steps, else mypy infers T from the union
        if isinstance(answer, Refusal):
            results.append(_not_grown(topic.name, answer))
        else:
            results.append(_Grown(name=topic.name))
    return CreatePartitionsResponse(results=results)


def _growth(new: NewPartitions, *, validate_only: bool) -> Operation[int]:
    """The answer is the number of added partitions."""

    def decide(
        image: ClusterImage, epoch: int, layers: BrokerLayers
    ) -> TermDecision[int] | Refusal:
        txns = create_partitions(image, epoch, new, layers)
        if isinstance(txns, Refusal):
            return txns
        topic = image.topic(new.name)
        assert topic is not None, "only a topic that is there can grow"
        return TermDecision(() if validate_only else txns, new.count - len(topic.partitions))

    return decide


def _not_grown(name: str, refusal: Refusal) -> _Grown:
    return _Grown(name=name, error_code=refusal.error, error_message=refusal.message or None)


def _refuse_growth(
    request: CreatePartitionsRequest, _version: int, refusal: Refusal
) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[_not_grown(name, refusal) for name in names])


def _growth_is_shown(
    image: ClusterImage, request: CreatePartitionsRequest, answer: CreatePartitionsResponse
) -> bool:
    done = {result.name for result in answer.results if not result.error_code}
    return request.validate_only or all(
        (topic := image.topic(wanted.name)) is not None and len(topic.partitions) >= wanted.count
        for wanted in request.topics
        if wanted.name in done
    )


GROW: Final = ControllerWork(
    _grow,
    _refuse_growth,
    lambda request: request.timeout_ms,
    _growth_is_shown,
    _grow,
    GROWTH_STRICT_SINCE,
)
