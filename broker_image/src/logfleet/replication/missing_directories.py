"""How a broker notices a missing log directory.

All that may hold its logs are recorded in the store.

A partition whose log may be in a missing directory is lost until that is back: an empty log in its
place would assign offsets a second time. If another broker leads the partition and this replica is
neither in the ISR nor an eligible leader, an empty log is filled like any other that fell behind.
Kafka's metadata has the directory of each replica (KIP-858); LogManager.getOrCreateLog makes no log
for a partition that is not new while a directory is offline. Here there is one record per broker,
and no write per partition.
"""

from collections.abc import Collection

import msgspec

from logfleet.metadata.image import Directories, Partition
from logfleet.types import BrokerEpoch


class LogDirectories(msgspec.Struct, frozen=True):
    """A broker's directories at its start.

    online: ids of those whose logs are loaded. bad: ids of the others, the path of one whose id is
    unknown.
    """

    online: frozenset[str]
    bad: frozenset[str] = frozenset()

    def missing(self, recorded: Directories | None) -> frozenset[str]:
        """Recorded directories that are not there.

        Without a record (data of an earlier version): the bad ones.
        """
        return (self.bad if recorded is None else recorded.ids) - self.online

    def to_record(self, recorded: Directories | None, forgotten: Collection[str]) -> frozenset[str]:
        """The ids to record before a log is made.

        All recorded and online ones except the forgotten.
        """
        return (self.missing(recorded) - frozenset(forgotten)) | self.online


def is_new(partition: Partition, broker_id: int, broker_epoch: BrokerEpoch | None) -> bool:
    """Whether nobody led the partition before this registration was in its ISR.

    Then this broker has no older log of it.
    """
    return partition.leader_epoch == 0 and (broker_id, broker_epoch) in partition.isr


def may_begin_empty(partition: Partition, broker_id: int) -> bool:
    """Whether a lost replica may start with an empty log.

    The leader then fills it, or, once the partition was given up, it may lead. Not if it is in the
    ISR or an eligible leader (KIP-966): it might be elected for the log it had. Registrations are
    let in in an order (`controller.brokers.fencing`) by which an active broker has left every ISR
    of its former registration.
    """
    if partition.given_up and not partition.has_leader:
        return True
    return (
        partition.has_leader
        and partition.leader != broker_id
        and broker_id not in partition.isr_ids
        and broker_id not in partition.elr
    )
