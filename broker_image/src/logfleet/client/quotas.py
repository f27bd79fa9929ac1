"""Describing and altering client quotas (KIP-546).

Raises the errors of `client.errors`; the message of a refused change's KafkaError has the reason.
"""

from collections.abc import Mapping, Sequence

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import raise_for
from logfleet.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Entity = Mapping[str, str | None]
"""Whose quota it is: `user`, `client-id` or `ip` with a name, None for the default of that type."""

_EXACT, _DEFAULT = 0, 1


class Quota(msgspec.Struct, frozen=True):
    """Limits of one entity by quota key, e.g. `producer_byte_rate`."""

    entity: Entity
    limits: Mapping[str, float]


async def describe_quotas(client: Client, entity: Entity, *, strict: bool = False) -> list[Quota]:
    """Quotas of entities that match `entity` (all for an empty one).

    strict: only entities without other types.
    """
    components = [
        DescribeClientQuotasRequest.ComponentData(
            entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
        )
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    async def call() -> list[Quota]:
        connection = await client.any()
        response = await connection.request(request, DescribeClientQuotasResponse)
        raise_for(response.error_code, response.error_message, subject="quotas")
        return [
            Quota(
                {each.entity_type: each.entity_name for each in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or ()
        ]

    return await client.retrying(call)


async def alter_quota(
    client: Client,
    entity: Entity,
    *,
    set_: Mapping[str, float] | None = None,
    delete: Sequence[str] = (),
    validate_only: bool = False,
) -> None:
    """Set limits of an entity and remove others; validate_only: only have it checked."""
    kind = AlterClientQuotasRequest
    operations = [kind.OpData(key=key, value=limit) for key, limit in (set_ or {}).items()]
    operations += [kind.OpData(key=key, remove=True) for key in delete]
    names = [kind.EntityData(entity_type=type_, entity_name=name) for type_, name in entity.items()]
    request = kind(
        entries=[kind.EntryData(entity=names, ops=operations)], validate_only=validate_only
    )

    async def call() -> None:
        connection = await client.any()
        response = await connection.request(request, AlterClientQuotasResponse)
        for entry in response.entries:
            raise_for(entry.error_code, entry.error_message, subject="quota")

    await client.retrying(call)
