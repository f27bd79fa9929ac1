"""The feature level of a fleet (KIP-584): which it is, which it could be, raising it (`logfleet.control.brokers.feature_level`)."""

from logfleet.client.cluster import Client
from logfleet.client.connection import SOFTWARE
from logfleet.client.errors import KafkaError, raise_for
from logfleet.control.brokers.feature_level import FEATURE, LEVEL_MIN, FeatureLevel
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def describe_level(client: Client) -> FeatureLevel:
    """As one broker tells it, and the controller judges what is above. Brokers that tell of no such feature are at level 1. Raises ClientError."""
    finalized, supported = await client.retrying(lambda: _told(client))
    objection = ""
    for level in range(supported, finalized, -1):
        try:
            await raise_level(client, level, validate_only=True)
        except KafkaError as error:
            if error.retriable:
                raise
            # Or of a controller from before there were levels, which knows no such request.
            objection = error.message.rpartition(f"for feature {FEATURE}. ")[2]
        else:
            return FeatureLevel(finalized, level, objection)
    return FeatureLevel(finalized, finalized, objection)


async def _told(client: Client) -> tuple[int, int]:
    """The finalized level, and the highest that the broker which answers can do."""
    connection = await client.any()
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1]
    )
    answer = await connection.request(
        request, ApiVersionsResponse, timeout_ms=client.request_timeout_ms
    )
    raise_for(answer.error_code, subject="ApiVersions")
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    able = {row.name: row.max_version for row in answer.supported_features}
    return levels.get(FEATURE, LEVEL_MIN), able.get(FEATURE, LEVEL_MIN)


async def raise_level(client: Client, level: int, *, validate_only: bool = False) -> None:
    """The level is finalized, if it was not before. validate_only: look whether it could be. Raises KafkaError: INVALID_UPDATE_VERSION says which brokers cannot do it."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=level)
    request = UpdateFeaturesRequest(
        timeout_ms=client.request_timeout_ms, feature_updates=[update], validate_only=validate_only
    )

    async def call() -> None:
        connection = await client.any()
        answer = await connection.request(
            request, UpdateFeaturesResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(answer.error_code, answer.error_message, subject=FEATURE)

    await client.retrying(call)
