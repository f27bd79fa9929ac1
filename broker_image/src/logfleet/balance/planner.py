"""Which replicas should go where, and by which moves: a pure function of the brokers' load.

Goals, in this order; each keeps what the earlier ones reached:

1. nothing is on brokers that leave;
2. replicas of a partition are spread over as many racks as there are, evenly;
3. no broker's disks are fuller than FULL;
4. bytes on disk, then the number of replicas, are the same on all brokers;
5. every broker leads the same number of partitions, give or take one, and then about the same
traffic: by reordering replicas, which copies nothing.

1 to 3 must hold. For 4 nothing is moved until a broker is off by HYSTERESIS, and then until all are
within TARGET, the largest partitions that fit first: so few are moved, and few bytes more than must
be (`least_bytes`). The same load gives the same plan. After part of a plan was carried out, the
next plan starts from the replicas as they are. Compare Cruise Control's goals (RackAwareGoal,
DiskCapacityGoal, DiskUsageDistributionGoal, ReplicaDistributionGoal,
LeaderReplicaDistributionGoal).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from logfleet.balance.board import Board
from logfleet.balance.load import (
    FULL,
    HYSTERESIS,
    TARGET,
    Load,
    Move,
    PartitionLoad,
    Plan,
    Skew,
)

SMALL_BYTES: Final = 16 * 1024 * 1024
"""A difference of fewer bytes is not worth a move."""
HOT: Final = 0.1
SWAPS_MAX: Final = 200


def plan(load: Load) -> Plan:
    """The moves that reach the goals as far as possible."""
    board = Board(load)
    before = board.skew()
    unmet = [*_evacuate(board), *_spread(board), *_empty_full_disks(board)]
    _even_out_bytes(board)
    _even_out_replicas(board)
    _share_leaders(board)
    _share_traffic(board)
    return _plan_of(load, board, before, unmet)


def evacuation(load: Load) -> Plan:
    """The moves that empty brokers that leave (goal 1), and no others."""
    board = Board(load)
    before = board.skew()
    return _plan_of(load, board, before, list(_evacuate(board)))


def _plan_of(load: Load, board: Board, before: Skew, unmet: Sequence[str]) -> Plan:
    changed = sorted(board.changed(), key=lambda each: _rank(each[1], each[2], board))
    moves = tuple(
        Move(
            each.topic,
            each.index,
            each.replicas,
            after,
            each.bytes * len(set(after) - set(each.replicas)),
            board.reasons[number],
        )
        for number, each, after in changed
    )
    return Plan(moves, before, board.skew(), least_bytes(load), tuple(unmet), tuple(_hot(load)))


def least_bytes(load: Load) -> int:
    """Bytes that every plan has to copy.

    All bytes on brokers that leave plus the excess of the others, or the lack of those with too
    little, whichever is more.
    """
    board = Board(load)
    staying = [broker.id for broker in board.staying]
    left = sum(board.bytes[broker.id] for broker in load.brokers if broker.leaving)
    if not staying:
        return left
    mean = (left + sum(board.bytes[each] for each in staying)) / len(staying)
    if not _is_off({each: board.bytes[each] for each in staying}, mean, SMALL_BYTES):
        return left
    excess = sum(max(0.0, board.bytes[each] - mean * (1 + HYSTERESIS)) for each in staying)
    lack = sum(max(0.0, mean * (1 - HYSTERESIS) - board.bytes[each]) for each in staying)
    return int(max(left + excess, lack))


# --- what must hold


def _evacuate(board: Board) -> Iterator[str]:
    """Move replicas off brokers that leave, the largest first, so that the others fit around."""
    for number in _largest_first(board):
        for old in list(board.replicas[number]):
            broker = board.brokers.get(old)
            if broker is None or not broker.leaving:
                continue
            new = _best(board, number, old)
            if new is None:
                yield (
                    f"{board.partitions[number]} stays on broker {old}: no other broker may take it"
                )
            else:
                board.replace(number, old, new, f"broker {old} leaves")


def _spread(board: Board) -> Iterator[str]:
    racks = {broker.rack for broker in board.staying}
    for number in _largest_first(board):
        while True:
            replicas = board.replicas[number]
            crowding = board.crowding(replicas)
            if crowding == len(replicas):
                break
            found = [
                (
                    board.crowding_with(number, old, new),
                    old == replicas[0],
                    board.bytes[new],
                    new,
                    old,
                )
                for old in replicas
                for new in board.takers()
                if new not in replicas and board.has_room(new, board.partitions[number].bytes)
            ]
            best = min(found, default=None)
            if best is None or best[0] >= crowding:
                if len(
                    {board.brokers[each].rack for each in replicas if each in board.brokers}
                ) < min(len(replicas), len(racks)):
                    yield (
                        f"{board.partitions[number]} is not on as many racks as it could be: no "
                        "broker there may take it"
                    )
                break
            *_, new, old = best
            board.replace(number, old, new, "its replicas are to be on different racks")


def _empty_full_disks(board: Board) -> Iterator[str]:
    for broker in board.staying:
        if broker.capacity is None:
            continue
        while (excess := board.bytes[broker.id] - FULL * broker.capacity) > 0:
            sizes = board.sizes(broker.id)
            enough = bisect_right(sizes, (int(excess), -1))
            order = [
                *sizes[enough:],
                *reversed(sizes[:enough]),
            ]  # the smallest that is enough, then the largest
            moved = next(
                (
                    (number, new)
                    for size, number in order
                    if size
                    and (new := _best(board, number, broker.id)) is not None
                    and board.fits(number, broker.id, new)
                ),
                None,
            )
            if moved is None:
                yield (
                    f"the disks of broker {broker.id} stay over {FULL:.0%} full: nothing on it "
                    "fits elsewhere"
                )
                break
            board.replace(moved[0], broker.id, moved[1], f"the disks of broker {broker.id} fill up")


def _best(board: Board, number: int, old: int) -> int | None:
    """The best broker to replace `old`: best spread over racks first, then least load.

    None if there is none.
    """
    size = board.partitions[number].bytes
    found = [
        (board.crowding_with(number, old, new), board.bytes[new], board.held[new], new)
        for new in board.takers()
        if new not in board.replicas[number] and board.has_room(new, size)
    ]
    return min(found)[-1] if found else None


# --- what should be even


def _even_out_bytes(board: Board) -> None:
    ids = [broker.id for broker in board.staying]
    mean = sum(board.bytes[each] for each in ids) / max(1, len(ids))
    if not _is_off({each: board.bytes[each] for each in ids}, mean, SMALL_BYTES):
        return
    vain: set[tuple[int, int]] = set()
    while True:
        was_vain = bool(vain)
        step = _byte_step(board, ids, mean, vain)
        if step is not None:
            board.replace(*step, "bytes on disk are to be even")
        elif was_vain:
            vain.clear()  # moves since then may have made room
        else:
            return


def _byte_step(
    board: Board, ids: list[int], mean: float, vain: set[tuple[int, int]]
) -> tuple[int, int, int] | None:
    """The largest partition that brings two brokers nearer to the mean.

    Returns (number, old, new), None if none does.

    The fullest and the emptiest brokers come first. vain: pairs of brokers without such a
    partition, which are skipped.
    """
    takers = sorted(board.takers(), key=lambda each: (board.bytes[each], each))
    for old in sorted(ids, key=lambda each: (-board.bytes[each], each)):
        for new in takers:
            excess, lack = board.bytes[old] - mean, mean - board.bytes[new]
            if excess <= 0 or lack <= 0:
                break
            is_off = max(excess, lack) > mean * TARGET
            if not is_off or (old, new) in vain:
                continue
            number = _fitting(board, old, new, min(excess, lack), excess + lack)
            if number is not None:
                return number, old, new
            vain.add((old, new))
    return None


def _fitting(board: Board, old: int, new: int, wanted: float, gap: float) -> int | None:
    """The largest partition up to `wanted` bytes, else the next one if it narrows the gap."""
    sizes = board.sizes(old)
    at = bisect_right(sizes, (int(wanted) + 1, -1))
    for size, number in reversed(sizes[:at]):
        if size and board.fits(number, old, new):
            return number
    if at < len(sizes):
        size, number = sizes[at]
        if size < gap and size <= 2 * wanted and board.fits(number, old, new):
            return number
    return None


def _even_out_replicas(board: Board) -> None:
    """Move the smallest partitions, and none that would make bytes uneven again."""
    ids = [broker.id for broker in board.staying]
    mean = sum(board.held[each] for each in ids) / max(1, len(ids))
    if not _is_off({each: board.held[each] for each in ids}, mean, 1):
        return
    mean_bytes = sum(board.bytes[each] for each in ids) / len(ids)
    slack = mean_bytes * TARGET if mean_bytes > SMALL_BYTES else SMALL_BYTES
    allowance = max(1.0, mean * TARGET)
    while True:
        step = None
        takers = sorted(board.takers(), key=lambda each: (board.held[each], each))
        for old in sorted(ids, key=lambda each: (-board.held[each], each)):
            for new in takers:
                is_off = board.held[old] > mean + allowance or board.held[new] < mean - allowance
                if not is_off or board.held[old] - board.held[new] < 2:
                    break
                step = next(
                    (
                        (number, old, new)
                        for size, number in board.sizes(old)
                        if size == 0
                        or (
                            board.bytes[old] - size >= mean_bytes - slack
                            and board.bytes[new] + size <= mean_bytes + slack
                        )
                        if board.fits(number, old, new)
                    ),
                    None,
                )
                if step is not None:
                    break
            if step is not None:
                break
        if step is None:
            return
        board.replace(*step, "replicas are to be even")


def _is_off(carried: Mapping[int, float], mean: float, least: float) -> bool:
    """Whether any broker is far enough from the mean to be worth a move."""
    return any(abs(value - mean) > max(mean * HYSTERESIS, least) for value in carried.values())


# --- who leads


def _share_leaders(board: Board) -> None:
    """Move leaderships from brokers with too many to brokers with too few.

    By way of other brokers if needed, shortest paths first.
    """
    ids = [broker.id for broker in board.staying]
    if not ids or max(board.led[each] for each in ids) - min(board.led[each] for each in ids) <= 1:
        return
    edges: dict[int, dict[int, set[int]]] = {each: {} for each in ids}
    for number, replicas in enumerate(board.replicas):
        _link(edges, number, replicas[0], replicas[1:])
    while (path := _path(board, edges, ids)) is not None:
        for source, target in pairwise(path):
            number = min(edges[source][target])
            replicas = board.replicas[number]
            _unlink(edges, number, source, replicas[1:])
            board.prefer(number, target, "leaders are to be even")
            _link(edges, number, target, board.replicas[number][1:])


def _link(
    edges: dict[int, dict[int, set[int]]], number: int, leader: int, others: list[int]
) -> None:
    if leader in edges:
        for each in others:
            if each in edges:
                edges[leader].setdefault(each, set()).add(number)


def _unlink(
    edges: dict[int, dict[int, set[int]]], number: int, leader: int, others: list[int]
) -> None:
    if leader in edges:
        for each in others:
            if each in edges:
                edges[leader][each].discard(number)


def _path(
    board: Board, edges: Mapping[int, Mapping[int, set[int]]], ids: list[int]
) -> list[int] | None:
    """A path from a broker that leads most to one that leads at least two fewer."""
    for start in sorted(ids, key=lambda each: (-board.led[each], each)):
        came_from: dict[int, int] = {start: start}
        queue = deque([start])
        while queue:
            at = queue.popleft()
            if board.led[start] - board.led[at] >= 2:
                path = [at]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            for each in sorted(edges[at]):
                if edges[at][each] and each not in came_from:
                    came_from[each] = at
                    queue.append(each)
    return None


def _share_traffic(board: Board) -> None:
    """Let two brokers swap one leadership each while that brings the busiest nearer to the mean."""
    ids = [broker.id for broker in board.staying]
    mean = sum(board.rate[each] for each in ids) / max(1, len(ids))
    for _ in range(SWAPS_MAX):
        if not _is_off({each: board.rate[each] for each in ids}, mean, 1):
            return
        busy = max(ids, key=lambda each: (board.rate[each], -each))
        calm = min(ids, key=lambda each: (board.rate[each], each))
        gap = board.rate[busy] - board.rate[calm]
        given = _led_with(board, busy, calm)
        taken = _led_with(board, calm, busy)
        swaps = [
            (abs(gap / 2 - (one.rate - other.rate)), number, back)
            for number, one in given[:50]
            for back, other in taken[:50]
            if 0 < one.rate - other.rate < gap
        ]
        if not swaps:
            return
        _, number, back = min(swaps)
        board.prefer(number, calm, "traffic is to be even")
        board.prefer(back, busy, "traffic is to be even")


def _led_with(board: Board, leader: int, other: int) -> list[tuple[int, PartitionLoad]]:
    """Number and load of partitions that `leader` leads and `other` has too, the busiest first."""
    found = [
        (number, board.partitions[number])
        for _, number in board.sizes(leader)
        if board.replicas[number][0] == leader and other in board.replicas[number]
    ]
    return sorted(found, key=lambda each: (-each[1].rate, each[0]))


# --- the plan


def _largest_first(board: Board) -> list[int]:
    return sorted(
        range(len(board.partitions)), key=lambda number: (-board.partitions[number].bytes, number)
    )


def _rank(
    partition: PartitionLoad, after: tuple[int, ...], board: Board
) -> tuple[bool, bool, int, str, int]:
    """Sort key of moves: off leaving brokers first, then the largest, last those that copy nothing.

    Leaders can only move once the replicas are there.
    """
    leaves = any(
        each in board.brokers and board.brokers[each].leaving for each in partition.replicas
    )
    copies = bool(set(after) - set(partition.replicas))
    return (not leaves, not copies, -partition.bytes, partition.topic, partition.index)


def _hot(load: Load) -> Iterator[str]:
    total = sum(each.rate for each in load.partitions)
    for each in load.partitions:
        if total and each.rate > HOT * total and len(load.partitions) > 1 / HOT:
            by = [
                f"{what} mostly by {client}"
                for what, client in (("written", each.writer), ("read", each.reader))
                if client is not None
            ]
            yield ", ".join((f"{each} is {each.rate / total:.0%} of all traffic", *by))
