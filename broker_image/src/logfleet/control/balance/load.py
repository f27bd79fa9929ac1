"""What a plan is made of: brokers and partitions with what they weigh; and what a plan says."""

from typing import Final

import msgspec

HYSTERESIS: Final = 0.10
"""How far, as a share of the mean, a broker may be off before anything is moved for it."""
TARGET: Final = 0.05
"""How near to the mean brokers are brought once something is moved: else the next byte would begin it all again."""
FULL: Final = 0.85
"""Share of a broker's disks that is not to be exceeded."""


class BrokerLoad(msgspec.Struct, frozen=True):
    """capacity: bytes of its disks, None if nobody knows. takes_new: False while it is cordoned. leaving: nothing is to stay on it."""

    id: int
    rack: str | None = None
    capacity: int | None = None
    takes_new: bool = True
    leaving: bool = False


class PartitionLoad(msgspec.Struct, frozen=True):
    """replicas: broker ids, the preferred leader first. bytes: of one replica. rate: bytes per second in and out, of its leader.

    writer, reader: client ids that most of that comes from and goes to, None if nobody knows.
    """

    topic: str
    index: int
    replicas: tuple[int, ...]
    bytes: int = 0
    rate: float = 0.0
    writer: str | None = None
    reader: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Load(msgspec.Struct, frozen=True):
    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]


class Move(msgspec.Struct, frozen=True):
    """A partition's replicas before and after. bytes: that have to be copied; 0 where only the preferred leader changes. reason: one line."""

    topic: str
    index: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int
    reason: str

    @property
    def added(self) -> frozenset[int]:
        return frozenset(self.after) - frozenset(self.before)


class Skew(msgspec.Struct, frozen=True):
    """How far the broker that is furthest off is from the mean of those that stay, as a share of it: 0.1 is ten per cent."""

    replicas: float
    leaders: float
    bytes: float
    rate: float


class Plan(msgspec.Struct, frozen=True):
    """moves: in the order in which they should begin. least_bytes: what any plan that reaches the goals has to copy. unmet: what could not be reached, and why.

    hot: partitions that alone are more than a tenth of the traffic, each with who makes it: one line.
    """

    moves: tuple[Move, ...]
    before: Skew
    after: Skew
    least_bytes: int
    unmet: tuple[str, ...] = ()
    hot: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(move.bytes for move in self.moves)
