"""ApiVersions: the APIs that this broker serves, by its handlers (KIP-35, KIP-511)."""

import re
from typing import Any

from logfleet.controller.brokers.feature_level import features
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.handlers.transaction_gate import served
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ApiVersionsRequest, ApiVersionsResponse

# Name and version of a client (Kafka: ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_MINIMUM_0_SINCE = 4
"""Older clients refuse an answer with a supported feature whose minimum is 0 (KAFKA-17492)."""
_NO_NODE = -1


def api_versions(
    rooms: Rooms, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """The served versions of each API.

    A client that expects another cluster or broker must bootstrap again (KIP-1242); it sends both
    ids or neither. Of Kafka's features (KIP-584), on which clients change their behaviour, only
    those that are in force are reported.
    """
    if context.api_version >= _SOFTWARE_SINCE:
        software = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.software = software
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.cluster_id not in {None, rooms.cluster_id} or request.node_id not in {
        _NO_NODE,
        rooms.node_id,
    }:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    image = rooms.metadata.image
    rows = [
        ApiVersionsResponse.ApiVersion(
            api_key=api.key, min_version=api.min_version, max_version=api.max_version
        )
        for api in served(rooms.requests.apis, image)
        if api.advertised
    ]
    reported = list(features(image, rooms.config.logfleet_feature_level_max))
    return ApiVersionsResponse(
        api_keys=rows,
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=each.name, min_version=each.low, max_version=each.high
            )
            for each in reported
            if each.low or context.api_version >= _MINIMUM_0_SINCE
        ],
        finalized_features_epoch=image.features.revision,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=each.name,
                max_version_level=each.finalized,
                min_version_level=each.finalized,
            )
            for each in reported
        ],
    )


HANDLERS: dict[type, Handler[Any]] = {ApiVersionsRequest: api_versions}
