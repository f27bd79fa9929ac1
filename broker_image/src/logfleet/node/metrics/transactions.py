"""Decided transactions of this broker's coordinators, as far as they are not complete."""

from collections.abc import Iterator

from logfleet.node.transactions.room import Transactions
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, single


def transactions(room: Transactions) -> Iterator[Family]:
    """What transactions wait for. Usually there is nothing."""
    markers, shards = room.markers, room.coordinators.shards()
    yield single(table.TRANSACTIONS_WITHOUT_MARKERS, len(markers.book))
    yield single(table.LEADERLESS_MARKERS, markers.unknown_destinations)
    uncompleted = sum(shard.coordinator.uncompleted for shard in shards)
    yield single(table.UNCOMPLETED_TRANSACTIONS, uncompleted)
