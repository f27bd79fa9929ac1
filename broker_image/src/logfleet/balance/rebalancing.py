"""Carries out a plan, a few moves at a time.

It plans again from the replicas as they are, so that after an interruption anybody can continue.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from logfleet.balance.fleet_load import bytes_left, fleet_load
from logfleet.balance.limits import IN_ALL, PER_BROKER
from logfleet.balance.load import Move, Plan
from logfleet.balance.planner import evacuation, plan
from logfleet.balance.waves import next_moves
from logfleet.client.admin import Admin, ResourceType
from logfleet.client.cluster import Client
from logfleet.client.offsets import TopicPartition
from logfleet.client.reassignments import (
    Moving,
    Reassignment,
    alter_reassignments,
    elect_preferred_leaders,
    list_reassignments,
)
from logfleet.config.throttle_keys import Side
from logfleet.resources.plan import OF_MOVES
from logfleet.telemetry.flows import Flow

RATES: Final = (Side.LEADER.rate_key, Side.FOLLOWER.rate_key)
REPLICAS: Final = tuple(sorted(OF_MOVES))


class Goal(msgspec.Struct, frozen=True):
    """The goal of the moves.

    leaving, excluded: as in `fleet_load`; if brokers leave, nothing else is moved. per_broker,
    in_all: moves at a time. throttle: bytes per second and broker that moves may take; None for no
    bound.
    """

    leaving: frozenset[int] = frozenset()
    excluded: frozenset[str] = frozenset()
    per_broker: int = PER_BROKER
    in_all: int = IN_ALL
    throttle: int | None = None


class Progress(msgspec.Struct, frozen=True):
    """The progress of the moves towards a goal.

    under_way: partitions that move; if brokers leave, only those that leave them. bytes_left: what
    these have to copy. planned, planned_bytes: moves that have not begun. unmet: goals that the
    plan cannot reach. refused: why moves did not begin, by partition.
    """

    under_way: int
    bytes_left: int
    planned: int
    planned_bytes: int
    unmet: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        return not self.under_way and not self.planned

    @property
    def is_over(self) -> bool:
        """Nothing moves, and all that is left is refused: continuing changes nothing."""
        return not self.under_way and (not self.planned or bool(self.refused))


async def make_plan(client: Client, goal: Goal, flows: Collection[Flow] = ()) -> Plan:
    """The moves that are left. flows: traffic, as far as it is known. Raises ClientError."""
    load = await fleet_load(client, leaving=goal.leaving, excluded=goal.excluded, flows=flows)
    return evacuation(load) if goal.leaving else plan(load)


async def advance(client: Client, goal: Goal, flows: Collection[Flow] = ()) -> Progress:
    """Begin the moves that may begin now; returns the progress.

    Repeat until it is done. Raises ClientError.
    """
    made = await make_plan(client, goal, flows)
    moving = await list_reassignments(client)
    under_way = [_as_move(key, each) for key, each in moving.items()]
    begun = list(next_moves(made.moves, under_way, per_broker=goal.per_broker, in_all=goal.in_all))
    if goal.throttle is not None and begun:
        await throttle(client, goal.throttle, {move.topic for move in begun if move.added})
    refused = await alter_reassignments(
        client, {TopicPartition(move.topic, move.index): move.after for move in begun}
    )
    mine = _of_goal(await list_reassignments(client), goal)
    places = {(move.topic, move.index) for move in begun}
    waiting = [move for move in made.moves if (move.topic, move.index) not in places]
    return Progress(
        len(mine),
        await bytes_left(client, mine) if mine else 0,
        len(waiting),
        sum(move.bytes for move in waiting),
        made.unmet,
        tuple(f"{key}: {why}" for key, why in refused.items()),
    )


def _of_goal(moving: Moving, goal: Goal) -> Moving:
    """The moves to wait for: if brokers leave, not those of anybody else."""
    if not goal.leaving:
        return moving
    return {key: each for key, each in moving.items() if not goal.leaving.isdisjoint(each.origin)}


async def finish(client: Client, goal: Goal) -> None:
    """After the last move: elect preferred leaders, and remove throttles. Raises ClientError."""
    await elect_preferred_leaders(client)
    if goal.throttle is not None:
        await _unthrottle(client)


async def stop(client: Client, goal: Goal = Goal()) -> Sequence[str]:  # noqa: B008 (it is frozen)
    """Cancel all that is under way; returns why some could not be cancelled. Raises ClientError."""
    moving = await list_reassignments(client)
    refused = await alter_reassignments(client, dict.fromkeys(moving, None))
    if goal.throttle is not None:
        await _unthrottle(client)
    return [f"{key}: {why}" for key, why in refused.items()]


def _as_move(key: TopicPartition, each: Reassignment) -> Move:
    return Move(key.topic, key.partition, each.origin, each.target, 0, "")


async def throttle(client: Client, rate: int, topics: Collection[str]) -> None:
    """Limit the bytes per second that followers not in sync copy of these topics (KIP-73).

    `finish` removes it. Raises ClientError.
    """
    admin = Admin(client)
    for node in (await admin.describe_cluster()).brokers:
        rates = dict.fromkeys(RATES, str(rate))
        await _set(admin, ResourceType.BROKER, str(node.id), rates)
    for topic in sorted(topics):
        await _set(admin, ResourceType.TOPIC, topic, dict.fromkeys(REPLICAS, "*"))


async def _set(admin: Admin, kind: ResourceType, name: str, wanted: Mapping[str, str]) -> None:
    there = await admin.config(kind, name)
    if any(key not in there or there[key].value != value for key, value in wanted.items()):
        await admin.alter_config(kind, name, set_keys=wanted)


async def _unthrottle(client: Client) -> None:
    admin = Admin(client)
    for topic in await _throttled_topics(client):
        await admin.alter_config(ResourceType.TOPIC, topic, set_keys={}, delete_keys=REPLICAS)
    for node in (await admin.describe_cluster()).brokers:
        await admin.alter_config(ResourceType.BROKER, str(node.id), set_keys={}, delete_keys=RATES)


async def _throttled_topics(client: Client) -> list[str]:
    admin = Admin(client)
    names = [topic.name for topic in await admin.list_topics()]
    values = await admin.topic_values(names, REPLICAS[0])
    return [name for name, value in values.items() if value == "*"]
