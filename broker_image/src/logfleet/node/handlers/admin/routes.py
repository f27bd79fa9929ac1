"""The administrative requests.

The controller does all changes; another broker forwards them in an Envelope (KIP-590).
"""

import ipaddress
from typing import Any, Final, cast

import msgspec

from logfleet.auth.principal import ANONYMOUS, Principal, decode_principal
from logfleet.controller.running.access import ControllerWork, Origin
from logfleet.controller.terms.operations import NotControllerError
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.admin import brokers, configs, features, partitions, quotas, topics
from logfleet.node.handlers.rooms import Rooms, origin_of
from logfleet.wire.apis import API_BY_KEY
from logfleet.wire.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from logfleet.wire.frame import SIZE_BYTES, decode_request, decode_request_header, encode_response
from logfleet.wire.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    EnvelopeRequest,
    EnvelopeResponse,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

WORK: Final[dict[type[msgspec.Struct], ControllerWork]] = {
    CreateTopicsRequest: topics.CREATE,
    DeleteTopicsRequest: topics.DELETE,
    CreatePartitionsRequest: topics.GROW,
    AlterClientQuotasRequest: quotas.ALTER,
    IncrementalAlterConfigsRequest: configs.INCREMENTAL_ALTER,
    AlterConfigsRequest: configs.ALTER,
    UnregisterBrokerRequest: brokers.UNREGISTER,
    ElectLeadersRequest: partitions.ELECT,
    AlterPartitionReassignmentsRequest: partitions.REASSIGN,
    UpdateFeaturesRequest: features.UPDATE,
}
UNFENCED: Final[frozenset[type[msgspec.Struct]]] = frozenset(
    {*WORK, EnvelopeRequest, ApiVersionsRequest, DescribeClusterRequest}
)
"""Requests whose answers do not depend on this broker leading anything.

A change is a store write with compares, so a success stays true after a change of leader.
Brokers send the last two to each other while the metadata store does not answer
(`logfleet.node.cluster.failsafe`).
"""
ADDRESS_BYTES: Final = (4, 16)


async def change(rooms: Rooms, request: msgspec.Struct, context: RequestContext) -> msgspec.Struct:
    """Serve any request of WORK."""
    work = WORK[type(request)]
    return await rooms.control.access.perform(work, request, origin_of(context))


async def envelope(
    rooms: Rooms, request: EnvelopeRequest, context: RequestContext
) -> EnvelopeResponse:
    """Do what another broker forwards, if this one is the controller (Kafka: EnvelopeUtils).

    It is never forwarded again.
    """
    if context.listener != rooms.config.inter_broker_listener_name:
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    frame = request.request_data
    try:
        principal = _forwarded(request.request_principal)
    except MalformedMessage:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        header, position = decode_request_header(frame)
        api = API_BY_KEY[header.api_key]
        work = WORK.get(api.request)
        if work is None or len(request.client_host_address) not in ADDRESS_BYTES:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not api.serves(header.api_version):
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        forwarded = decode_request(header, frame, position)
    except (MalformedMessage, UnsupportedVersion):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        address = str(ipaddress.ip_address(request.client_host_address))
        origin = Origin(header.api_version, principal, header.client_id, address)
        answer = await work.run(rooms.control.access, forwarded, origin)
    except NotControllerError:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    parts = encode_response(api, header.api_version, header.correlation_id, answer)
    return EnvelopeResponse(response_data=b"".join(cast("list[bytes]", parts))[SIZE_BYTES:])


def _forwarded(principal: bytes | None) -> Principal:
    """Who sent a forwarded request; ANONYMOUS where an earlier version forwarded it.

    Raises MalformedMessage.
    """
    return decode_principal(principal) if principal else ANONYMOUS


HANDLERS: dict[type, Handler[Any]] = {
    **dict.fromkeys(WORK, change),
    IncrementalAlterConfigsRequest: configs.alter_incrementally,
    DescribeConfigsRequest: configs.describe_configs,
    ListConfigResourcesRequest: configs.list_config_resources,
    ListPartitionReassignmentsRequest: partitions.list_partition_reassignments,
    DescribeClientQuotasRequest: quotas.describe_client_quotas,
    EnvelopeRequest: envelope,
}
