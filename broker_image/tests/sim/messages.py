"""What brokers and clients of a simulation say to each other.

Where a request names a topic by its id, `index` is the number of a partition (`naming`), else its
index in the topic of that name.
"""

import msgspec
from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.follower import NextFetch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.replica_log import NO_PRODUCER, Batch, Part


class Fetch(msgspec.Struct, frozen=True):
    """A follower asks. starts: where its logs start, by partition.

    known: the high watermark and the log start that the leader sent last, as in a fetch session.
    wait_ms: after that it is answered though nothing is new.
    """

    replica: int
    broker_epoch: int
    rows: dict[int, NextFetch]
    starts: dict[int, int]
    known: dict[int, tuple[int, int]]
    wait_ms: int


class Row(msgspec.Struct, frozen=True):
    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    batches: tuple[Batch, ...] = ()
    high_watermark: int = -1
    log_start: int = 0


class Range(msgspec.Struct, frozen=True):
    """Where does the leader's log start and end? Answered by both, or None by a broker that does not lead.

    It names the topic, not its id (ListOffsets).
    """

    index: int
    leader_epoch: int


class LogEnds(msgspec.Struct, frozen=True):
    """How far do the logs of these replicas reach? Answered by EpochEnds by index, of those that have no leader."""

    indexes: tuple[int, ...]


class IsStoreSilent(msgspec.Struct, frozen=True):
    """Does the store answer your keepalives, and did this registration stand when it last did? Answered by True if not, and if so."""

    broker: int
    epoch: int


class Produce(msgspec.Struct, frozen=True):
    """part: in a transaction. adds: the leader has to add the partition to it (TV2)."""

    index: int
    value: str
    is_acks_all: bool
    producer: int = NO_PRODUCER
    sequence: int = -1
    part: Part | None = None
    adds: bool = False

    @property
    def batch(self) -> Batch:
        """As it is judged: nowhere yet."""
        return Batch(0, 0, self.value, self.producer, self.sequence, self.part)


class Produced(msgspec.Struct, frozen=True):
    error: ErrorCode
    offset: int = -1


class Read(msgspec.Struct, frozen=True):
    """A consumer asks for what is committed from `offset` on.

    leader_epoch: of the leader that it asks (KIP-320). read_epoch: of the one that gave it the
    record before; no client sends this, it is for the checker.
    """

    index: int
    offset: int
    leader_epoch: int
    read_epoch: int


class ReadAnswer(msgspec.Struct, frozen=True):
    """log_start: where the log starts, if the offset is out of range."""

    error: ErrorCode
    batches: tuple[Batch, ...] = ()
    log_start: int = 0


class Metadata(msgspec.Struct, frozen=True):
    """Who leads? Answered by Led."""

    index: int


class Led(msgspec.Struct, frozen=True):
    """What a broker knows of a partition: its leader, NO_LEADER if it knows of none, and its epoch.

    partition: its number, which names the topic id.
    """

    leader: int
    epoch: int = -1
    partition: int = -1
