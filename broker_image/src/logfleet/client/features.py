"""The feature level of a fleet: describing and raising it.

KIP-584; `logfleet.controller.brokers.feature_level`.
"""

from logfleet.client.cluster import Client
from logfleet.client.connection import SOFTWARE
from logfleet.client.errors import KafkaError, raise_for
from logfleet.controller.brokers.feature_level import FEATURE, LEVEL_MIN, FeatureLevel
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def describe_level(client: Client) -> FeatureLevel:
    """The level and the highest possible one.

    One broker reports the level and what it supports; the controller checks higher levels. Brokers
    that report no such feature are at level 1. Raises ClientError.
    """
    finalized, supported = await client.retrying(lambda: _reported(client))
    objection = ""
    for level in range(supported, finalized, -1):
        try:
            await raise_level(client, level, validate_only=True)
        except KafkaError as error:
            if error.retriable:
                raise
            # Also from a controller older than feature levels, which does not know the request.
            objection = error.message.rpartition(f"for feature {FEATURE}. ")[2]
        else:
            return FeatureLevel(finalized, level, objection)
    return FeatureLevel(finalized, finalized, objection)


async def _reported(client: Client) -> tuple[int, int]:
    """The finalized level, and the highest that the responding broker supports."""
    connection = await client.any()
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1]
    )
    response = await connection.request(
        request, ApiVersionsResponse, timeout_ms=client.request_timeout_ms
    )
    raise_for(response.error_code, subject="ApiVersions")
    levels = {row.name: row.max_version_level for row in response.finalized_features}
    supported = {row.name: row.max_version for row in response.supported_features}
    return levels.get(FEATURE, LEVEL_MIN), supported.get(FEATURE, LEVEL_MIN)


async def raise_level(client: Client, level: int, *, validate_only: bool = False) -> None:
    """Raise the level unless it is finalized already.

    validate_only: only check whether it can be raised.

    Raises KafkaError: INVALID_UPDATE_VERSION names the brokers that do not support it.
    """
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=level)
    request = UpdateFeaturesRequest(
        timeout_ms=client.request_timeout_ms, feature_updates=[update], validate_only=validate_only
    )

    async def call() -> None:
        connection = await client.any()
        response = await connection.request(
            request, UpdateFeaturesResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, response.error_message, subject=FEATURE)

    await client.retrying(call)
