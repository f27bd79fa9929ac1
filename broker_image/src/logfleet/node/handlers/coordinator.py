"""FindCoordinator: a coordinator leads the partition of an internal topic that its key belongs to.

The offsets topic has the groups, `__transaction_state` the transactional ids. A request creates the
topic if it is missing. Share groups have no coordinator in this version: they get
COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from typing import Any, Final

import msgspec

from logfleet.auth.operations import Operation, Resource, ResourceType
from logfleet.controller.brokers.feature_level import TRANSACTIONS, needs, transactions_allowed
from logfleet.coordinators.partition import partition_for
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
KEY_TYPES: Final = frozenset({GROUP, TRANSACTION, SHARE})
BATCHED_SINCE: Final = 4  # KIP-699
SHARE_SINCE: Final = 6  # KIP-932
NOT_AVAILABLE_MESSAGE: Final = "The coordinator is not available."
NO_TRANSACTIONS: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
"""The error for producers with a transactional id below the feature level of transactions.

librdkafka gives up at it (rd_kafka_txn_handle_FindCoordinator; it retries others,
UNSUPPORTED_VERSION too), and of the errors where it does, the Java client reports the message of
the answer only with this one (TransactionManager.FindCoordinatorHandler).
"""


class _FoundCoordinator(msgspec.Struct, frozen=True):
    """A coordinator's address, or why there is none."""

    node_id: int = -1
    host: str = ""
    port: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def find_coordinator(
    rooms: Rooms, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Find the coordinators of one key before version 4, of several since."""
    if context.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(key, _find(rooms, request.key_type, key, context))
                for key in request.coordinator_keys
            ]
        )
    found = _find(rooms, request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=found.error,
        # Kafka's message of no error is its name (Errors.message).
        error_message=found.message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(key: str, found: _FoundCoordinator) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error,
        error_message=found.message,
    )


def _find(rooms: Rooms, key_type: int, key: str, context: RequestContext) -> _FoundCoordinator:
    if key_type not in KEY_TYPES or (key_type == SHARE and context.api_version < SHARE_SINCE):
        message = f"There is no coordinator type {key_type}."
        return _FoundCoordinator(error=ErrorCode.INVALID_REQUEST, message=message)
    image = rooms.metadata.image
    if key_type == SHARE:
        message = f"{NOT_AVAILABLE_MESSAGE} This version does not serve share groups."
        return _FoundCoordinator(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=message)
    if key_type == TRANSACTION:
        if not transactions_allowed(image):
            return _FoundCoordinator(error=NO_TRANSACTIONS, message=_no_transactions(rooms))
        if not context.may(Operation.DESCRIBE, Resource(ResourceType.TRANSACTIONAL_ID, key)):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _FoundCoordinator(error=error, message="Transactional Id authorization failed.")
    topic = (rooms.coordinators if key_type == GROUP else rooms.transactions.coordinators).topic
    partitions = topic.partitions(image)
    if not partitions:
        topic.want(image)
        return _not_available()
    index = partition_for(key, partitions)
    leader = rooms.partitions.leader_by_name(topic.name, index, context.listener)
    if leader is None or leader.host is None:
        return _not_available()
    if leader.broker_id == rooms.node_id and rooms.partitions.get(topic.name, index) is None:
        # this broker will lead soon, but would refuse the client's next request until then
        return _not_available()
    return _FoundCoordinator(leader.broker_id, leader.host, leader.port)


def _no_transactions(rooms: Rooms) -> str:
    """Why there are none: the level is too low, or this broker does not support a higher one."""
    if rooms.config.logfleet_feature_level_max < TRANSACTIONS:
        return "This version does not serve transactions."
    return needs(rooms.metadata.image, TRANSACTIONS, "A transactional id")


def _not_available() -> _FoundCoordinator:
    return _FoundCoordinator(
        error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=NOT_AVAILABLE_MESSAGE
    )


HANDLERS: dict[type, Handler[Any]] = {FindCoordinatorRequest: find_coordinator}
