"""How many moves run at a time: a few per broker, so that copying leaves room for other work."""

from collections import Counter
from collections.abc import Iterable, Iterator

from logfleet.balance.limits import IN_ALL, PER_BROKER
from logfleet.balance.load import Move


def next_moves(
    moves: Iterable[Move],
    under_way: Iterable[Move],
    *,
    per_broker: int = PER_BROKER,
    in_all: int = IN_ALL,
) -> Iterator[Move]:
    """The moves that may begin now, in order. under_way: moves that have begun and are not done.

    A broker takes part in a move that adds or removes a replica on it, or that copies from it as
    the preferred leader. A move that copies nothing never waits.
    """
    busy = Counter[int]()
    count = 0
    for move in under_way:
        busy.update(_taking_part(move))
        count += 1
    for move in moves:
        if not move.added:
            yield move
            continue
        taking_part = _taking_part(move)
        if count < in_all and all(busy[each] < per_broker for each in taking_part):
            busy.update(taking_part)
            count += 1
            yield move


def _taking_part(move: Move) -> frozenset[int]:
    return move.added | (frozenset(move.before) - frozenset(move.after)) | {move.before[0]}
