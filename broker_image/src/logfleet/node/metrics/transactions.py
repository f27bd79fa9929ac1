"""Decided transactions of this broker's coordinators, as far as they are not complete."""

from collections.abc import Iterator

from logfleet.node.transactions.room import Transactions
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, single


def transactions(room: Transactions) -> Iterator[Family]:
    """What transactions wait for. Usually there is nothing."""
    coordinators = [shard.coordinator for shard in room.coordinators.shards()]
    unmarked = sum(each.unmarked for each in coordinators)
    yield single(table.TRANSACTIONS_WITHOUT_MARKERS, unmarked)
    yield single(table.LEADERLESS_MARKERS, room.markers.unknown_destinations)
    uncompleted = sum(each.uncompleted for each in coordinators)
    yield single(table.UNCOMPLETED_TRANSACTIONS, uncompleted)
