"""Cordoning brokers through the admin API: they get no new replicas.

KIP-1066; `logfleet.controller.brokers.cordons`.
"""

from collections.abc import Collection

from logfleet.client.admin import Admin, ResourceType
from logfleet.controller.brokers.cordons import ALL, CORDONED, is_whole


async def set_cordons(admin: Admin, broker_ids: Collection[int], *, cordoned: bool) -> None:
    """Cordon or uncordon these brokers, which must run.

    Raises ClientError; brokers before the failing one are done.
    """
    are_cordoned = await cordoned_brokers(admin, broker_ids)
    for broker_id in broker_ids:
        if (broker_id in are_cordoned) == cordoned:
            continue
        await admin.alter_config(
            ResourceType.BROKER,
            str(broker_id),
            set_keys={CORDONED: ALL} if cordoned else {},
            delete_keys=() if cordoned else (CORDONED,),
        )


async def cordoned_brokers(admin: Admin, broker_ids: Collection[int]) -> set[int]:
    """Return those of these brokers that are cordoned as a whole.

    All must run. Raises ClientError.
    """
    found = set()
    for broker_id in broker_ids:
        entry = (await admin.config(ResourceType.BROKER, str(broker_id))).get(CORDONED)
        if entry is not None and is_whole(entry.value):
            found.add(broker_id)
    return found
