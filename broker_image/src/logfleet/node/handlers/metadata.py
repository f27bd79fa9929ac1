"""Metadata, DescribeTopicPartitions and DescribeCluster, from this broker's image of the cluster.

The rules are Kafka's (KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache,
DescribeTopicPartitionsRequestHandler). Unlike in Kafka, `controller_id` is the real controller, not
any broker. Only brokers that are active and have the listener of the request are returned; a client
can reach no others.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from logfleet.auth.operations import CLUSTER, Operation, Resource, ResourceType
from logfleet.controller.changes.topics import name_problem
from logfleet.metadata.image import INTERNAL_TOPICS, Broker, ClusterImage, Partition, Topic
from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms, origin_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from logfleet.wire.uuids import ZERO_UUID

NO_ID: Final = -1
BROKER_ENDPOINT: Final = 1
CONTROLLER_ENDPOINT: Final = 2
# Versions that carry topic ids but refuse requests by them (KIP-516).
IDS_REFUSED: Final = frozenset({10, 11})
# First versions: of requests for no topic at all, of LISTENER_NOT_FOUND, of replicas that are
# offline.
NO_TOPICS_SINCE: Final = 1
LISTENER_NOT_FOUND_SINCE: Final = 6
ALL_REPLICAS_SINCE: Final = 1

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition
_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


class _View(msgspec.Struct, frozen=True):
    """An image as clients of one listener see it: with the brokers that they can reach."""

    image: ClusterImage
    listener: str
    reachable: dict[int, tuple[Broker, Endpoint]]

    @classmethod
    def of(cls, image: ClusterImage, listener: str) -> "_View":
        reachable = {
            broker.id: (broker, address)
            for broker in image.brokers.values()
            if not broker.is_fenced and (address := broker.listener(listener)) is not None
        }
        return cls(image, listener, reachable)

    def controller_id(self) -> int:
        """The controller's broker; any other if it cannot be reached.

        Clients only need one that answers.
        """
        controller = self.image.controller
        if controller is not None and controller.broker in self.reachable:
            return controller.broker
        return min(self.reachable, default=NO_ID)

    def leader_error(self, partition: Partition, *, reports_listener: bool) -> ErrorCode:
        if partition.leader in self.reachable:
            return ErrorCode.NONE
        leader = self.image.brokers.get(partition.leader)
        if reports_listener and leader is not None and not leader.is_fenced:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE

    def offline(self, topic: Topic, index: int) -> list[int]:
        """Replicas whose broker cannot be reached, or whose log directory is offline.

        Source: KRaftMetadataCache.getOfflineReplicas.
        """
        return [
            broker_id
            for broker_id in topic.partitions[index].replicas
            if broker_id not in self.reachable or self.image.is_offline(broker_id, topic.id, index)
        ]


def metadata(rooms: Rooms, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    version = context.api_version
    if version in IDS_REFUSED and any(map(_names_id, request.topics or ())):
        return _invalid(request)
    view = _View.of(rooms.metadata.image, context.listener)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.id, host=address.host, port=address.port, rack=broker.rack
            )
            for broker, address in view.reachable.values()
        ],
        cluster_id=rooms.cluster_id,
        controller_id=view.controller_id(),
        topics=_topics(rooms, view, request, context),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _allowed_on_cluster(context)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = _allowed_on_topic(topic.name or "", context)
    return response


def _allowed_on_topic(name: str, context: RequestContext) -> int:
    return context.allowed(Resource(ResourceType.TOPIC, name))


def _allowed_on_cluster(context: RequestContext) -> int:
    """Without DESCRIBE a client does not learn what else it may do."""
    return context.allowed(CLUSTER) if context.may(Operation.DESCRIBE, CLUSTER) else 0


def _names_id(topic: MetadataRequest.MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_UUID


def _invalid(request: MetadataRequest) -> MetadataResponse:
    """An error for every topic, and nothing of the cluster (MetadataRequest.getErrorResponse)."""
    rows = [
        _Topic(error_code=ErrorCode.INVALID_REQUEST, name=each.name or "", topic_id=each.topic_id)
        for each in request.topics or ()
    ]
    return MetadataResponse(controller_id=NO_ID, topics=rows)


def _topics(
    rooms: Rooms, view: _View, request: MetadataRequest, context: RequestContext
) -> list[_Topic]:
    wanted, version = request.topics, context.api_version
    if wanted is None or (not wanted and version < NO_TOPICS_SINCE):
        return [_described(view, topic, version) for topic in view.image.topics()]
    ids = dict.fromkeys(each.topic_id for each in wanted if each.topic_id != ZERO_UUID)
    if ids:
        return [_by_id(view, topic_id, version) for topic_id in ids]
    if any(each.name is None for each in wanted):
        return [_Topic(error_code=ErrorCode.INVALID_REQUEST, name="")]
    return _by_name(rooms, view, [each.name or "" for each in wanted], request, context)


def _by_id(view: _View, topic_id: bytes, version: int) -> _Topic:
    topic = view.image.topic_by_id(topic_id)
    if topic is None:
        return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _described(view, topic, version)


def _by_name(
    rooms: Rooms,
    view: _View,
    names: Iterable[str],
    request: MetadataRequest,
    context: RequestContext,
) -> list[_Topic]:
    rows = []
    missing = []
    for name in dict.fromkeys(names):
        topic = view.image.topic(name)
        if topic is not None:
            rows.append(_described(view, topic, context.api_version))
            continue
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name_problem(name) is not None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            missing.append(name)
        rows.append(_Topic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS))
    if missing and request.allow_auto_topic_creation and rooms.config.auto_create_topics_enable:
        rooms.control.topic_creator.want(missing, origin_of(context))
    return rows


def _described(view: _View, topic: Topic, version: int) -> _Topic:
    return _Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(view, topic, index, version) for index in range(len(topic.partitions))
        ],
    )


def _partition(view: _View, topic: Topic, index: int, version: int) -> _Partition:
    partition = topic.partitions[index]
    error = view.leader_error(partition, reports_listener=version >= LISTENER_NOT_FOUND_SINCE)
    replicas, isr = list(partition.replicas), partition.isr_ids
    offline = view.offline(topic, index)
    if version < ALL_REPLICAS_SINCE and offline:
        # The oldest clients cannot see that a replica is offline: show them only those that are
        # online.
        replicas = [broker_id for broker_id in replicas if broker_id not in offline]
        isr = [broker_id for broker_id in isr if broker_id not in offline]
        error = error or ErrorCode.REPLICA_NOT_AVAILABLE
    return _Partition(
        error_code=error,
        partition_index=index,
        leader_id=NO_ID if partition.leader not in view.reachable else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def describe_topic_partitions(
    rooms: Rooms, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Topics by name, partitions up to a limit, then a cursor to continue from (KIP-966)."""
    if not _is_cursor_of(request):
        return DescribeTopicPartitionsResponse(
            topics=[
                _DescribedTopic(error_code=ErrorCode.INVALID_REQUEST, name=each.name)
                for each in request.topics
            ]
        )
    view = _View.of(rooms.metadata.image, context.listener)
    response = DescribeTopicPartitionsResponse()
    names, cursor = _names_from(view.image, request)
    limit = rooms.config.max_request_partition_size_limit
    left = max(min(limit, request.response_partition_limit), 1)
    for name in names:
        topic = view.image.topic(name)
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = _next(name, start)
            break
        if topic is None:  # the request names it
            response.topics.append(_not_described(name, context))
            continue
        shown = topic.partitions[start : start + left]
        response.topics.append(_page(view, topic, start, shown, context))
        left -= len(shown)
        if start + len(shown) < len(topic.partitions):
            response.next_cursor = _next(name, start + len(shown))
            break
    return response


_Cursor = DescribeTopicPartitionsRequest.Cursor


def _is_cursor_of(request: DescribeTopicPartitionsRequest) -> bool:
    """Whether the cursor, if there is one, can come from an answer to this request."""
    cursor = request.cursor
    if cursor is None:
        return True
    named = not request.topics or cursor.topic_name in {each.name for each in request.topics}
    return named and cursor.partition_index >= 0


def _names_from(
    image: ClusterImage, request: DescribeTopicPartitionsRequest
) -> tuple[Sequence[str], _Cursor | None]:
    """Sorted names to describe, from the cursor on; all topics if the request names none."""
    cursor = request.cursor
    names = {each.name for each in request.topics} or {topic.name for topic in image.topics()}
    first = "" if cursor is None else cursor.topic_name
    return sorted(name for name in names if name >= first), cursor


def _next(name: str, index: int) -> DescribeTopicPartitionsResponse.Cursor:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=index)


def _not_described(name: str, context: RequestContext) -> _DescribedTopic:
    valid = name_problem(name) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _DescribedTopic(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=_allowed_on_topic(name, context),
    )


def _page(
    view: _View,
    topic: Topic,
    start: int,
    partitions: Sequence[Partition],
    context: RequestContext,
) -> _DescribedTopic:
    return _DescribedTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _DescribedPartition(
                partition_index=index,
                leader_id=partition.leader if partition.leader in view.reachable else NO_ID,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=partition.isr_ids,
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=_last_known_elr(partition),
                offline_replicas=view.offline(topic, index),
            )
            for index, partition in enumerate(partitions, start)
        ],
        topic_authorized_operations=_allowed_on_topic(topic.name, context),
    )


def _last_known_elr(partition: Partition) -> list[int]:
    """The last leader, once nobody is in sync any more (KIP-966).

    Source: PartitionChangeBuilder.maybeUpdateLastKnownLeader.
    """
    is_reported = not partition.isr and partition.last_leader != NO_LEADER
    return [partition.last_leader] if is_reported else []


def describe_cluster(
    rooms: Rooms, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """The active brokers, and the fenced ones if they are requested (KIP-700, KIP-1073).

    While the metadata store does not answer this broker, it names no controller, and itself as
    fenced if fenced brokers are requested: other brokers learn from that whether they too have lost
    the store (`logfleet.node.cluster.silent_peers`).
    """
    if request.endpoint_type != BROKER_ENDPOINT:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLER_ENDPOINT:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = (
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
                "type CONTROLLER"
            )
        return DescribeClusterResponse(error_code=error, error_message=message)
    view = _View.of(rooms.metadata.image, context.listener)
    is_silent = bool(rooms.failsafe.silent_s)
    reports_itself_fenced = is_silent and request.include_fenced_brokers
    brokers = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=broker.id,
            host=address.host,
            port=address.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced or (reports_itself_fenced and broker.id == rooms.node_id),
        )
        for broker in view.image.brokers.values()
        if (address := broker.listener(context.listener)) is not None
        and (not broker.is_fenced or request.include_fenced_brokers)
    ]
    response = DescribeClusterResponse(
        cluster_id=rooms.cluster_id,
        controller_id=NO_ID if is_silent else view.controller_id(),
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _allowed_on_cluster(context)
    return response


HANDLERS: dict[type, Handler[Any]] = {
    MetadataRequest: metadata,
    DescribeTopicPartitionsRequest: describe_topic_partitions,
    DescribeClusterRequest: describe_cluster,
}
