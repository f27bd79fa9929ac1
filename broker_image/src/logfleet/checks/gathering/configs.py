"""Configurations of topics and brokers. One attempt each: see `gathering.offsets`."""

from collections.abc import Collection, Sequence
from typing import Final

from logfleet.checks.gathering.offsets import in_parts
from logfleet.client.admin import ResourceType
from logfleet.client.cluster import Client
from logfleet.client.connection import Connection
from logfleet.client.errors import raise_for
from logfleet.controller.brokers.cordons import CORDONED
from logfleet.wire.messages import DescribeConfigsRequest, DescribeConfigsResponse

TOPICS_MAX: Final = 500
"""In one request."""
TOPIC_KEYS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "flush.messages",
    "compression.type",
)
BROKER_KEYS: Final = ("default.replication.factor", "auto.create.topics.enable", CORDONED)

Configs = dict[str, dict[str, str]]
"""By name of the resource, and key."""


async def topic_configs(client: Client, names: Sequence[str]) -> Configs:
    """TOPIC_KEYS of these topics, without topics that are gone. Raises ClientError."""
    found: Configs = {}
    connection = await client.any()
    for some in in_parts(names, TOPICS_MAX):
        found |= await _configs(client, connection, ResourceType.TOPIC, some, TOPIC_KEYS)
    return found


async def own_config(client: Client, broker_id: int) -> dict[str, str]:
    """BROKER_KEYS of a broker, which it reports itself. Raises ClientError."""
    name = str(broker_id)
    connection = await client.broker(broker_id)
    found = await _configs(client, connection, ResourceType.BROKER, [name], BROKER_KEYS)
    return found.get(name, {})


async def _configs(
    client: Client,
    connection: Connection,
    kind: ResourceType,
    names: Sequence[str],
    keys: Collection[str],
) -> Configs:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys)
        )
        for name in names
    ]
    response = await connection.request(
        DescribeConfigsRequest(resources=resources),
        DescribeConfigsResponse,
        timeout_ms=client.request_timeout_ms,
    )
    if len(names) == 1:
        raise_for(response.results[0].error_code, response.results[0].error_message)
    return {
        result.resource_name: {
            row.name: row.value for row in result.configs if row.value is not None
        }
        for result in response.results
        if not result.error_code
    }
