"""ApiVersions: the APIs that this broker serves, by its handlers (KIP-35, KIP-511)."""

import re
from typing import Any

from logfleet.controller.brokers.feature_level import FEATURE, LEVEL_MIN
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ApiVersionsRequest, ApiVersionsResponse

# Name and version of a client (Kafka: ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_NO_NODE = -1


def api_versions(
    rooms: Rooms, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """The served versions of each API.

    A client that expects another cluster or broker must bootstrap again (KIP-1242); it sends both
    ids or neither. Only Logfleet's own feature is reported (KIP-584): clients change their
    behaviour on Kafka's, and none of those is served yet.
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
    rows = [
        ApiVersionsResponse.ApiVersion(
            api_key=api.key, min_version=api.min_version, max_version=api.max_version
        )
        for api in rooms.requests.apis
        if api.advertised
    ]
    features, level_max = rooms.metadata.image.features, rooms.config.logfleet_feature_level_max
    return ApiVersionsResponse(
        api_keys=rows,
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=FEATURE, min_version=LEVEL_MIN, max_version=level_max
            )
        ],
        finalized_features_epoch=features.revision,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=FEATURE, max_version_level=features.level, min_version_level=features.level
            )
        ],
    )


HANDLERS: dict[type, Handler[Any]] = {ApiVersionsRequest: api_versions}
