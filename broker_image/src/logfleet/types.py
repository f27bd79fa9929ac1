"""Types of integers that could be mistaken for one another: offsets, positions, epochs.

mypy keeps them apart; at run time each of them is an int. An Offset or a Position keeps its type
when a number is added, or 1 is subtracted; other arithmetic returns an int.
"""

from typing import TYPE_CHECKING, Final, Literal, NewType, overload

if TYPE_CHECKING:

    class Offset(int):
        """Counts the records of a partition; -1 often means none."""

        def __add__(self, records: int, /) -> "Offset":
            raise NotImplementedError

        @overload
        def __sub__(self, one: Literal[1], /) -> "Offset": ...
        @overload
        def __sub__(self, other: int, /) -> int: ...
        def __sub__(self, other: int, /) -> int:
            raise NotImplementedError

    class Position(int):
        """Counts the bytes of a file from its start."""

        def __add__(self, size: int, /) -> "Position":
            raise NotImplementedError

        @overload
        def __sub__(self, one: Literal[1], /) -> "Position": ...
        @overload
        def __sub__(self, other: int, /) -> int: ...
        def __sub__(self, other: int, /) -> int:
            raise NotImplementedError

else:
    # not NewType, whose call would cost more and whose arithmetic mypy sees as int
    Offset = Position = int

FILE_START: Final = Position(0)

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition."""
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
"""None, or not known."""
PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts the writes to a partition's state in the metadata store (KIP-497)."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""The revision that created a broker's registration (KIP-380)."""
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""An unknown epoch, as in Kafka's CleanShutdownFileHandler and BrokerRegistrationRequest."""
ProducerEpoch = NewType("ProducerEpoch", int)
"""Counts the producers that had one producer id (KIP-98, KIP-360)."""
