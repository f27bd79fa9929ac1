"""Orders to a broker that put faults into it, or change what only time or a member could change."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from logfleet.groups.classic.group import ClassicGroup, Member
from logfleet.groups.classic.groups import CLASSIC
from logfleet.io import clock
from logfleet.log.config import LONG_MAX
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.handlers.rooms import shard_of
from logfleet.testing.child import Order
from logfleet.testing.errors import OrderFailed
from logfleet.testing.faults.handlers import REPEATED, forget_repeats
from logfleet.testing.faults.rules import ArmedFault, BadFault, fault_of
from logfleet.testing.running import Running
from logfleet.wire.errors import ErrorCode

POLL_S: Final = 0.005


def _described(armed: ArmedFault) -> dict[str, Any]:
    return {"number": armed.number, "hits": armed.hits, "seen": armed.seen}


async def fault(running: Running, order: Mapping[str, Any]) -> int:
    """Arm the fault that `fault` describes; its number."""
    try:
        armed = running.faults.arm(fault_of(order["fault"]))
    except BadFault as error:
        raise OrderFailed(str(error)) from None
    if armed.fault.api in REPEATED:
        for listener in running.broker.opened.listeners.all:
            for connection in listener.connections:
                forget_repeats(connection.peer)
    return armed.number


async def faults(running: Running, _: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All faults that are armed, with what they have hit."""
    return [_described(each) | {"fault": _given(each)} for each in running.faults]


def _given(armed: ArmedFault) -> dict[str, Any]:
    fields = armed.fault.__struct_fields__
    values = {name: getattr(armed.fault, name) for name in fields}
    return {
        name: value
        for name, value in values.items()
        if name == "times" or (value is not None and value is not False)
    }


async def fault_hits(running: Running, order: Mapping[str, Any]) -> dict[str, Any]:
    """What a fault has hit, once that is `hits` or `limit_s` is over."""
    armed = _found(running, order)
    try:
        async with asyncio.timeout(order.get("limit_s", 0)):
            while armed.hits < order.get("hits", 0):  # noqa: ASYNC110  requests pay for no event
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        pass
    return _described(armed)


async def remove_fault(running: Running, order: Mapping[str, Any]) -> dict[str, Any]:
    """Remove a fault; what it has hit."""
    armed = _found(running, order)
    running.faults.remove(armed.number)
    return _described(armed)


def _found(running: Running, order: Mapping[str, Any]) -> ArmedFault:
    try:
        return running.faults.find(order["number"])
    except BadFault as error:
        raise OrderFailed(str(error)) from None


# --- disk and clock


async def disk(running: Running, order: Mapping[str, Any]) -> None:
    """Make the disk full or not, and slow by `slow_s`; the broker has measured it afterwards."""
    running.files.is_full = order["full"]
    running.files.slow_s = order["slow_s"]
    disks = running.broker.rooms.disks
    for log_dir in list(disks.log_dirs):
        await disks.disk_space.check(log_dir.path)


async def advance(running: Running, order: Mapping[str, Any]) -> None:
    """Have the wall clock be `ms` later, and do what is due then.

    Retention, the expiry of producers and of committed offsets have run afterwards.
    """
    clock.advance_wall_clock(order["ms"])
    maintenance = running.broker.opened.tasks.maintenance
    await maintenance.apply_retention()
    await maintenance.expire_producers()
    for shard in running.broker.rooms.coordinators.shards():
        while shard.expire_offsets():  # noqa: ASYNC110  it does a step of the work
            await asyncio.sleep(0)


async def compact(running: Running, order: Mapping[str, Any]) -> None:
    """Compact all logs, or those of `topic`, up to their ends."""
    opened, topic = running.broker.opened, order.get("topic")
    cleaner = opened.tasks.cleaner
    if cleaner is None:
        raise OrderFailed("log.cleaner.enable is false")
    compacted = [
        each
        for each in opened.rooms.partitions
        if each.log.config.compacts and topic in {None, each.topic}
    ]
    if topic is not None and not compacted:
        raise OrderFailed(f"{topic} has no partition here with cleanup.policy=compact")
    for each in compacted:
        each.log.roll(clock.now_ms())
    await opened.tasks.maintenance.flush()
    for each in compacted:
        await cleaner.compact_now(each)


# --- producers and groups


async def expire_producers(running: Running, order: Mapping[str, Any]) -> int:
    """Have all partitions forget the idempotent producer `id`, or all; how many were forgotten.

    Producers with an open transaction stay.
    """
    count = 0
    for each in running.broker.rooms.partitions:
        states = each.log.producers.states
        before = len(states)
        states.expire(
            list(states.ids()) if order["producer"] is None else [order["producer"]], LONG_MAX, 0
        )
        count += before - len(states)
    return count


async def rebalance(running: Running, order: Mapping[str, Any]) -> None:
    """Have all members of the group join again."""
    shard, group = _group(running, order["group"])
    if not group.members:
        raise OrderFailed(f"group {group.group_id} has no members")
    turn = shard.turn()
    shard.coordinator.of(CLASSIC).rebalance(turn, group, "a test wants it")
    shard.execute(turn)


async def expire_member(running: Running, order: Mapping[str, Any]) -> str:
    """End the session of one member of the group now; its id.

    member: its id, or its client id; None for any.
    """
    shard, group = _group(running, order["group"])
    name = order["member"]
    found = [
        each for each in group.members.values() if name in {None, each.member_id, each.client_id}
    ]
    if not found:
        wanted = "no members" if name is None else f"no member {name}"
        raise OrderFailed(f"group {group.group_id} has {wanted}")
    turn, member = shard.turn(), found[0]
    member.session.expire(turn)
    shard.execute(turn)
    if member.member_id in group.members:
        raise OrderFailed(f"{_waiting(member)}: its session cannot end now")
    return member.member_id


def _waiting(member: Member) -> str:
    return f"member {member.member_id} waits for an answer to its JoinGroup or SyncGroup"


def _group(running: Running, name: str) -> tuple[GroupShard, ClassicGroup]:
    shard = shard_of(running.broker.rooms, name)
    if isinstance(shard, ErrorCode):
        raise OrderFailed(f"broker {running.broker.config.node_id}: {shard.name} of group {name}")
    for group in shard.coordinator.of(CLASSIC).groups():
        if group.group_id == name:
            return shard, group
    raise OrderFailed(f"there is no group {name}")


ORDERS: Final[dict[str, Order[Running]]] = {
    each.__name__: each
    for each in (
        fault,
        faults,
        fault_hits,
        remove_fault,
        disk,
        advance,
        compact,
        expire_producers,
        rebalance,
        expire_member,
    )
}
