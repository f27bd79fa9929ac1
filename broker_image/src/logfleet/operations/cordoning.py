"""Cordons as they are set from outside (KIP-1066)."""

from collections.abc import Collection

from logfleet.client.admin import Admin, ResourceType
from logfleet.client.cluster import Client
from logfleet.control.brokers.cordons import ALL, CORDONED


async def set_cordons(client: Client, broker_ids: Collection[int], *, cordoned: bool) -> None:
    """Have these brokers given no new replicas, or again. Raises ClientError; those before it are done."""
    admin = Admin(client)
    for broker_id in broker_ids:
        await admin.alter_config(
            ResourceType.BROKER,
            str(broker_id),
            set_keys={CORDONED: ALL} if cordoned else {},
            delete_keys=() if cordoned else (CORDONED,),
        )
