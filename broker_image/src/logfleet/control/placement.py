"""Where the replicas of new partitions go.

Goals, in order of weight:

1. the replicas of a partition are on different brokers (must hold: fewer brokers than replicas is refused);
2. they spread over as many racks as there are, and evenly over those if there are more replicas than racks;
3. every broker leads the same number of partitions, give or take one, counting those the topic already has;
4. within a rack every broker follows the same number, give or take the last rounds;
5. brokers that lead together do not always have the same followers, so that the work of a lost one is shared.

Leaders come from one queue of all brokers, ordered by how many they lead, then alternating between racks. Followers come from
the racks after the leader's, each rack handing out its brokers in turn; the turn shifts by one whenever all brokers have led
once (goal 5). Compare Kafka's StripedReplicaPlacer, which balances per rack and so loads the brokers of small racks more.

Example: brokers 1a 2a 3b 4c, two replicas, start 0: leaders 1 3 4 2, followers from the next rack: 1,3  3,4  4,1  2,3.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence


class NotEnoughBrokersError(Exception):
    """There are fewer brokers than replicas of one partition. The text is for the user."""

    def __init__(self, factor: int, available: int, cordoned: Collection[int] = ()) -> None:
        """cordoned: brokers that are there besides, and are given nothing (KIP-1066)."""
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

    racks: every broker that may be chosen, with its rack; None is a rack of its own name.
    start: any number, best a random one: where among equals the choice begins, so that small topics do not all
    begin on the same broker.
    leaders: leader of each partition that the topic already has.
    Raises NotEnoughBrokersError.
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
    """`count` brokers more for a partition that is on `replicas`: of racks with the fewest of its replicas, of those who hold least first.

    racks: every broker that may be chosen, and those of `replicas`; None is a rack of its own name. held: replicas that each broker has.
    turn: another for each partition, so that among equals not always the same are chosen. There have to be enough.
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
    """The replicas but for `count`: first those that are not in sync, then of racks with most of them, the last by order first, the leader last of all.

    racks: as far as brokers are known; one that is not known has a rack of its own. count: fewer than there are.
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
    """All brokers, one of each rack in turn while they last, rotated by `start`."""
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
    """Each rack's brokers in turn, racks in the order in which leaders first come from them."""

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
