from logfleet.balance.load import Move
from logfleet.balance.waves import next_moves


def move(index: int, before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    return Move("t", index, before, after, 1, "")


MOVES = [move(index, (1, 2), (3, 2)) for index in range(4)]


def test_a_broker_takes_part_in_few_moves_at_a_time() -> None:
    assert list(next_moves(MOVES, [], per_broker=2)) == MOVES[:2]
    assert list(next_moves(MOVES[1:], MOVES[:1], per_broker=2)) == MOVES[1:2]
    assert list(next_moves(MOVES[2:], MOVES[:2], per_broker=2)) == []


def test_others_go_on_beside_it_up_to_so_many_in_all() -> None:
    others = [move(9, (4, 5), (4, 6)), move(8, (7, 8), (7, 9))]
    assert list(next_moves([*MOVES, *others], [], per_broker=1)) == [MOVES[0], *others]
    assert list(next_moves([*MOVES, *others], [], per_broker=1, in_all=2)) == [MOVES[0], others[0]]


def test_who_is_copied_from_takes_part_too() -> None:
    """The leader sends all of it, though its own replica stays."""
    first, second = move(0, (1, 2), (1, 3)), move(1, (1, 4), (1, 5))
    assert list(next_moves([first, second], [], per_broker=1)) == [first]


def test_another_order_waits_for_nobody() -> None:
    order = move(9, (1, 2), (2, 1))
    assert list(next_moves([*MOVES, order], MOVES, per_broker=1, in_all=1)) == [order]
