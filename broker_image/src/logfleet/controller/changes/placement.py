"""Where the replicas of new partitions go.

Goals, in order of weight:

1. the replicas of a partition are on different brokers (must hold: fewer brokers than replicas is
refused);
2. they are spread over as many racks as there are, evenly if there are more replicas than racks;
3. every broker leads the same number of the topic's partitions, old and new, give or take one;
4. within a rack every broker follows the same number, give or take the last rounds;
5. brokers that lead do not always have the same followers, so that several share the work of a lost
one.

Leaders come from one queue of all brokers, ordered by how many they lead, then alternating between
racks. Followers come from the racks after the leader's; each rack hands out its brokers in turn,
and the turn shifts by one whenever all brokers have led once (goal 5). Compare Kafka's
StripedReplicaPlacer, which balances per rack and so loads the brokers of small racks more.

Example: brokers 1a 2a 3b 4c, two replicas, start 0: leaders 1 3 4 2, followers from the next rack:
1,3  3,4  4,1  2,3.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence


class NotEnoughBrokersError(Exception):
    """There are fewer brokers than replicas of one partition. The message is for the user."""

    def __init__(self, factor: int, available: int, cordoned: Collection[int] = ()) -> None:
        """cordoned: registered brokers that get no replicas (KIP-1066)."""
        are = "are registered."
        if cordoned:
            ids = ", ".join(map(str, sorted(cordoned)))
            are = f"are registered and not cordoned; {len(cordoned)} broker(s) are cordoned: {ids}."
        super().__init__(
            f"Unable to replicate the partition {factor} time(s): the target replication "
            f"factor of {factor} cannot be reached because only {available} broker(s) {are}"
        )


def place(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    leaders: Iterable[int] = (),
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the leader first.

    racks: every broker that may be chosen, with its rack; None counts as one rack. start: any
    number, best a random one: which of equal brokers comes first, so that small topics do not all
    begin on the same broker. leaders: leader of each partition that the topic already has. Raises
    NotEnoughBrokersError.
    """
    if replication_factor > len(racks):
        raise NotEnoughBrokersError(replication_factor, len(racks))
    order = _alternating(racks, start)
    queue = _leader_queue(order, leaders)
    followers = _Followers(racks, order)
    placed = []
    for number in range(partitions):
        led, position, broker = heapq.heappop(queue)
        heapq.heappush(queue, (led + 1, position, broker))
        if number and number % len(order) == 0:
            followers.shift()
        placed.append((broker, *followers.take(broker, replication_factor - 1)))
    return placed


def add_replicas(
    racks: Mapping[int, str | None],
    replicas: Sequence[int],
    count: int,
    held: Mapping[int, int],
    turn: int,
) -> tuple[int, ...]:
    """`count` more brokers for a partition that is on `replicas`.

    They come from the racks with the fewest of its replicas, within those the brokers with the
    fewest replicas first. racks: every broker that may be chosen, and those of `replicas`; None
    counts as one rack. held: replicas of each broker. turn: a different number for each partition,
    so that the choice among equal brokers varies. There must be enough brokers.
    """
    order = sorted(racks)
    used = Counter(racks[each] for each in replicas)
    added: list[int] = []
    for _ in range(count):
        left = [each for each in order if each not in replicas and each not in added]
        chosen = min(
            left,
            key=lambda each: (
                used[racks[each]],
                held.get(each, 0),
                (order.index(each) + turn) % len(order),
            ),
        )
        used[racks[chosen]] += 1
        added.append(chosen)
    return tuple(added)


def drop_replicas(
    racks: Mapping[int, str | None],
    replicas: Sequence[int],
    count: int,
    leader: int,
    isr: Collection[int],
) -> tuple[int, ...]:
    """The replicas without `count` of them.

    First go those not in sync, then those of the racks with most of them, the last in order first,
    the leader last of all. racks: of known brokers; any other broker has its own rack. count: fewer
    than there are.
    """
    left = list(replicas)
    for _ in range(count):
        used = Counter(racks.get(each, each) for each in left)
        order = list(enumerate(left))
        _, dropped = max(
            order,
            key=lambda item: (
                item[1] != leader,
                item[1] not in isr,
                used[racks.get(item[1], item[1])],
                item[0],
            ),
        )
        left.remove(dropped)
    return tuple(left)


def _members(racks: Mapping[int, str | None]) -> dict[str | None, list[int]]:
    members: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        members.setdefault(racks[broker], []).append(broker)
    return members


def _alternating(racks: Mapping[int, str | None], start: int) -> list[int]:
    """All brokers, one of each rack in turn while there are any, rotated by `start`."""
    members = _members(racks)
    names = sorted(members, key=lambda rack: (rack is None, rack or ""))
    longest = max(map(len, members.values()))
    order = [
        members[rack][round_]
        for round_ in range(longest)
        for rack in names
        if round_ < len(members[rack])
    ]
    begin = start % len(order)
    return order[begin:] + order[:begin]


def _leader_queue(order: Sequence[int], leaders: Iterable[int]) -> list[tuple[int, int, int]]:
    led = dict.fromkeys(order, 0)
    for leader in leaders:
        if leader in led:
            led[leader] += 1
    queue = [(led[broker], position, broker) for position, broker in enumerate(order)]
    heapq.heapify(queue)
    return queue


class _Followers:
    """Each rack's brokers in turn; racks in the order of their first leaders."""

    def __init__(self, racks: Mapping[int, str | None], order: Sequence[int]) -> None:
        self._rack_of = racks
        self._turns: dict[str | None, list[int]] = {}
        for broker in order:
            self._turns.setdefault(racks[broker], []).append(broker)
        self._names = list(self._turns)
        self._next = dict.fromkeys(self._names, 0)
        self._shifts = 0

    def shift(self) -> None:
        self._shifts += 1
        for rack, members in self._turns.items():
            self._next[rack] = (self._next[rack] + 1) % len(members)

    def take(self, leader: int, count: int) -> list[int]:
        chosen = {leader}
        used = dict.fromkeys(self._names, 0)
        used[self._rack_of[leader]] = 1
        begin = self._names.index(self._rack_of[leader]) + 1 + self._shifts
        racks = [self._names[(begin + step) % len(self._names)] for step in range(len(self._names))]
        taken = []
        for _ in range(count):
            open_racks = [rack for rack in racks if used[rack] < len(self._turns[rack])]
            rack = min(open_racks, key=used.__getitem__)
            broker = self._next_of(rack, chosen)
            used[rack] += 1
            chosen.add(broker)
            taken.append(broker)
        return taken

    def _next_of(self, rack: str | None, chosen: set[int]) -> int:
        members = self._turns[rack]
        while True:
            broker = members[self._next[rack]]
            self._next[rack] = (self._next[rack] + 1) % len(members)
            if broker not in chosen:
                return broker
