"""Replicas on brokers while a plan is made.

Where they are, the load of brokers, where they may go.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence

from logfleet.balance.load import FULL, BrokerLoad, Load, PartitionLoad, Skew


class Board:
    """A partition's number is its index in the load.

    replicas: of each partition, changed in place. held, led, bytes, rate: per broker its replicas,
    preferred leaderships, bytes on disk and bytes per second led. reasons: the reason for the first
    move of a partition.
    """

    def __init__(self, load: Load) -> None:
        self.partitions = load.partitions
        self.brokers = {broker.id: broker for broker in load.brokers}
        self.replicas = [list(each.replicas) for each in load.partitions]
        self.held, self.led, self.bytes = Counter[int](), Counter[int](), Counter[int]()
        self.rate: dict[int, float] = dict.fromkeys(self.brokers, 0.0)
        self.reasons: dict[int, str] = {}
        self._by_size: dict[int, list[tuple[int, int]]] = {each: [] for each in self.brokers}
        for number, partition in enumerate(load.partitions):
            for broker_id in partition.replicas:
                self.held[broker_id] += 1
                self.bytes[broker_id] += partition.bytes
                self._by_size.setdefault(broker_id, []).append((partition.bytes, number))
            self._lead(number, 1)
        for sizes in self._by_size.values():
            sizes.sort()

    @property
    def staying(self) -> list[BrokerLoad]:
        """Brokers that do not leave, by id."""
        return [
            self.brokers[each] for each in sorted(self.brokers) if not self.brokers[each].leaving
        ]

    def takers(self) -> list[int]:
        """Ids of brokers that may get replicas."""
        return [broker.id for broker in self.staying if broker.takes_new]

    def sizes(self, broker_id: int) -> Sequence[tuple[int, int]]:
        """(bytes, number) of each partition with a replica on the broker, the smallest first."""
        return self._by_size.get(broker_id, ())

    def replace(self, number: int, old: int, new: int, reason: str) -> None:
        """Put the replica on the new broker instead of the old one."""
        partition, replicas = self.partitions[number], self.replicas[number]
        self._lead(number, -1)
        replicas[replicas.index(old)] = new
        self._lead(number, 1)
        entry = (partition.bytes, number)
        sizes = self._by_size[old]
        del sizes[bisect_left(sizes, entry)]
        insort(self._by_size[new], entry)
        for broker_id, by in ((old, -1), (new, 1)):
            self.held[broker_id] += by
            self.bytes[broker_id] += by * partition.bytes
        self.reasons.setdefault(number, reason)

    def prefer(self, number: int, broker_id: int, reason: str) -> None:
        """Make this replica the preferred leader; it swaps places with the first one."""
        replicas = self.replicas[number]
        at = replicas.index(broker_id)
        self._lead(number, -1)
        replicas[0], replicas[at] = replicas[at], replicas[0]
        self._lead(number, 1)
        self.reasons.setdefault(number, reason)

    def crowding(self, replicas: Sequence[int]) -> int:
        """How unevenly replicas are spread over racks: the sum of squares of replicas per rack.

        Less is better.
        """
        racks = Counter(self._rack(each) for each in replicas)
        return sum(count * count for count in racks.values())

    def crowding_with(self, number: int, old: int, new: int) -> int:
        return self.crowding([new if each == old else each for each in self.replicas[number]])

    def fits(self, number: int, old: int, new: int) -> bool:
        """Whether the new broker may take the replica.

        It has none of that partition, racks are spread no worse, and its disks have room.
        """
        replicas = self.replicas[number]
        return (
            new not in replicas
            and self.has_room(new, self.partitions[number].bytes)
            and (
                self._rack(old) == self._rack(new)
                or self.crowding_with(number, old, new) <= self.crowding(replicas)
            )
        )

    def has_room(self, broker_id: int, size: int) -> bool:
        capacity = self.brokers[broker_id].capacity
        return capacity is None or self.bytes[broker_id] + size <= FULL * capacity

    def changed(self) -> Iterator[tuple[int, PartitionLoad, tuple[int, ...]]]:
        """Number, partition and new replicas of each partition that changed."""
        for number, partition in enumerate(self.partitions):
            after = tuple(self.replicas[number])
            if after != partition.replicas:
                yield number, partition, after

    def skew(self) -> Skew:
        ids = [broker.id for broker in self.staying]
        return Skew(
            *(
                round(_skew([float(carried[each]) for each in ids]), 4)
                for carried in (self.held, self.led, self.bytes, self.rate)
            )
        )

    def _rack(self, broker_id: int) -> str | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def _lead(self, number: int, by: int) -> None:
        leader = self.replicas[number][0]
        self.led[leader] += by
        self.rate[leader] = self.rate.get(leader, 0.0) + by * self.partitions[number].rate


def _skew(values: Sequence[float]) -> float:
    mean = sum(values) / len(values) if values else 0.0
    return max(abs(value - mean) for value in values) / mean if mean else 0.0
