"""The groups that this broker coordinates, and their lag on partitions that it leads too."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from logfleet.groups.classic.group import GroupState
from logfleet.groups.classic.groups import CLASSIC
from logfleet.node.groups.group_lag import PartitionLag, group_lags
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.partitions.parked import ParkedCounts
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, Row, labelled, labels_text, single

STEP_ROWS = 50
"""Offsets handled in one step of the loop."""


class GroupFigures:
    """One scrape. series_max: up to how many offsets each has a series of its own."""

    def __init__(
        self,
        shards: Iterable[GroupShard],
        partitions: PartitionTable,
        parked: ParkedCounts,
        series_max: int,
    ) -> None:
        self._shards = list(shards)
        self._partitions = partitions
        self._parked = parked
        self._series_max = series_max
        self._states = Counter(dict.fromkeys(GroupState, 0))
        self._members = self._offsets = self._joining = 0
        self._committed: list[tuple[str, int]] = []
        self._lags: list[tuple[str, int]] = []
        self._sums: list[tuple[str, int]] = []

    def families(self) -> Iterator[Family]:
        """Groups by state, members, committed offsets, lag; and parked requests by kind."""
        yield Family(table.GROUPS, self._count())
        yield single(table.GROUP_MEMBERS, self._members)
        waiting = {
            "Fetch": self._parked.fetches,
            "Produce": self._parked.produces,
            "Rebalance": self._joining,
        }
        yield labelled(table.PURGATORY_SIZE, [((name,), count) for name, count in waiting.items()])
        yield Family(table.GROUP_OFFSETS, self._measure())
        is_listed = self._offsets <= self._series_max
        yield Family(table.GROUP_COMMITTED_OFFSET, self._committed if is_listed else ())
        yield Family(table.GROUP_PARTITION_LAG, self._lags if is_listed else ())
        yield Family(table.GROUP_LAG, self._sums if len(self._sums) <= self._series_max else ())
        topics = len(self._partitions.by_id)
        kinds = {
            "group offsets": self._offsets,
            "partitions": len(self._partitions),
            "topics": topics,
        }
        yield labelled(
            table.LEFT_OUT,
            [((kind,), count if count > self._series_max else 0) for kind, count in kinds.items()],
        )

    def _count(self) -> Iterator[Row]:
        for shard in self._shards:
            for group in shard.coordinator.of(CLASSIC).groups():
                self._states[group.state] += 1
                self._members += len(group.members)
                self._joining += group.awaiting_join
                yield None
        for state in GroupState:
            yield labels_text(table.GROUPS.labels, [state.value]), self._states[state]

    def _measure(self) -> Iterator[Row]:
        for (group, topic), lags in groupby(
            group_lags(self._shards, self._partitions), attrgetter("group", "topic")
        ):
            yield from self._measure_topic(group, topic, lags)
        yield "", self._offsets

    def _measure_topic(self, group: str, topic: str, lags: Iterable[PartitionLag]) -> Iterator[Row]:
        total: int | None = None
        for row, each in enumerate(lags):
            self._offsets += 1
            if each.lag is not None:
                total = (total or 0) + each.lag
            if self._offsets <= self._series_max:
                names = [group, topic, each.partition]
                label = labels_text(table.GROUP_PARTITION_LAG.labels, names)
                self._committed.append((label, each.committed))
                if each.lag is not None:
                    self._lags.append((label, each.lag))
            if row % STEP_ROWS == STEP_ROWS - 1:
                yield None
        if total is not None and len(self._sums) <= self._series_max:
            self._sums.append((labels_text(table.GROUP_LAG.labels, [group, topic]), total))
        yield None
