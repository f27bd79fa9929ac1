"""The groups of one partition of `__consumer_offsets` that this broker leads."""

import asyncio
from collections.abc import Iterator, Sequence

from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.records import OFFSETS_TOPIC, GroupRecord
from logfleet.groups.registry import record_types
from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.node.coordinators.shard import CoordinatorShard


def group_kind(config: GroupConfig) -> CoordinatorKind[GroupRecord, GroupCoordinator]:
    """Coordinators of groups with these limits and timers."""
    records = record_types()
    return CoordinatorKind(
        topic=OFFSETS_TOPIC,
        noun="group",
        new_coordinator=lambda: GroupCoordinator(config),
        encode=records.encode,
        decode=records.decode,
    )


class GroupShard(CoordinatorShard[GroupRecord, GroupCoordinator]):
    """The groups of one partition. It removes expired offsets, and those of deleted topics."""

    _deleted_while_loading: tuple[tuple[str, bytes], ...] = ()
    _is_removing = False

    def start(self) -> Iterator[None]:
        """Start the shard, then remove the offsets of topics that were deleted while it loaded."""
        yield from super().start()
        self.remove_topics(self._deleted_while_loading)

    def expire_offsets(self) -> bool:
        """Remove offsets whose retention is over, one step of it.

        False once all groups were checked, or if nothing can be written.
        """
        return self.step(self.coordinator.expiry)

    def remove_topics(self, deleted: Sequence[tuple[str, bytes]]) -> None:
        """Topics were deleted: remove their offsets, once loading is done.

        deleted: names and ids (see TopicRemoval.add).
        """
        if self.is_closed:
            return
        if not self.is_loaded:
            self._deleted_while_loading += tuple(deleted)
        elif deleted:
            self.coordinator.removal.add(self.turn(), deleted)
            self.remove_due_topics()

    def remove_due_topics(self) -> None:
        """Remove the offsets of deleted topics, the first step now.

        What cannot be written is left for the next call.
        """
        if not self._is_removing and self.coordinator.removal.is_due:
            self._is_removing = self.step(self.coordinator.removal)
            if self._is_removing:
                self._spawn(self._remove())

    async def _remove(self) -> None:
        while self._is_removing:
            await asyncio.sleep(0)
            self._is_removing = self.step(self.coordinator.removal)
