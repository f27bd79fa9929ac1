"""By what a broker misses a log directory: those that may hold its logs are on record, whether they are there or not.

A partition whose log may be in a missing directory is lost until that is back: an empty log in its place would give away offsets anew. Not
where another broker leads it and nobody counts on what was here: then an empty one is filled as any that fell behind.
Kafka: KIP-858 has the directory of each replica in its metadata; LogManager.getOrCreateLog makes no log for a partition
that is not new while a directory is offline. Here the record is one per broker, and no write per partition.
"""

from collections.abc import Collection

import msgspec

from logfleet.metadata.image import Directories, Partition


class LogDirectories(msgspec.Struct, frozen=True):
    """A broker's at its start. online: ids of those whose logs are loaded. bad: ids of the others; where nobody knows it, the path."""

    online: frozenset[str]
    bad: frozenset[str] = frozenset()

    def missing(self, recorded: Directories | None) -> frozenset[str]:
        """Those on record that are not there; without a record (data of an earlier version) those that are bad."""
        return (self.bad if recorded is None else recorded.ids) - self.online

    def to_record(self, recorded: Directories | None, forgotten: Collection[str]) -> frozenset[str]:
        """What the record must hold before a log is made: nothing is left out but what is to be forgotten."""
        return (self.missing(recorded) - frozenset(forgotten)) | self.online


def is_new(partition: Partition, broker_id: int, broker_epoch: int | None) -> bool:
    """Whether nobody led the partition before this very registration was in sync with it, so that no log of it here is older."""
    return partition.leader_epoch == 0 and (broker_id, broker_epoch) in partition.isr


def may_begin_empty(partition: Partition, broker_id: int) -> bool:
    """Whether a replica that is lost may be made anew: to be filled by the leader, or, once the partition was given up, to lead.

    Not one that counts as complete, in the ISR or as an eligible leader (KIP-966): it might be elected for what it had. By the order in which
    registrations are let in (`control.brokers.fencing`) a broker that is active has left every ISR of its former life.
    """
    if partition.given_up and not partition.has_leader:
        return True
    return (
        partition.has_leader
        and partition.leader != broker_id
        and broker_id not in partition.isr_ids
        and broker_id not in partition.elr
    )
