"""The input of a plan (brokers and partitions with their load) and the plan itself."""

from typing import Final

import msgspec

HYSTERESIS: Final = 0.10
"""A broker may differ from the mean by this share before anything is moved for it."""
TARGET: Final = 0.05
"""Once anything is moved, brokers are brought this near to the mean.

Otherwise the next byte would start it all again.
"""
FULL: Final = 0.85
"""Largest share of a broker's disks that may be used."""


class BrokerLoad(msgspec.Struct, frozen=True):
    """One broker that a plan may use.

    capacity: bytes of its disks, None if unknown. takes_new: False while it is cordoned. leaving:
    all its replicas must move.
    """

    id: int
    rack: str | None = None
    capacity: int | None = None
    takes_new: bool = True
    leaving: bool = False


class PartitionLoad(msgspec.Struct, frozen=True):
    """One partition of a plan's input.

    replicas: broker ids, the preferred leader first. bytes: of one replica. rate: bytes per second
    in and out of its leader. writer, reader: client ids that cause most of that, None if unknown.
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
    """A partition's replicas before and after.

    bytes: to be copied; 0 if only the preferred leader changes. reason: one line.
    """

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
    """Largest deviation of a staying broker from their mean, as a share of it.

    0.1 is ten per cent.
    """

    replicas: float
    leaders: float
    bytes: float
    rate: float


class Plan(msgspec.Struct, frozen=True):
    """A plan.

    moves: in the order in which they should begin. least_bytes: any plan that reaches the goals has
    to copy at least these. unmet: goals that could not be reached, and why. hot: one line for each
    partition that alone has more than a tenth of the traffic, with its main clients.
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
