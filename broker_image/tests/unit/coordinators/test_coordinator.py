from collections.abc import Callable, Iterator

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.turn import Turn


class Words(Coordinator[str]):
    """Stores nothing but words, in their order."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def apply(self, record: str) -> None:
        self.words.append(record)

    def take_up(self, begin_turn: Callable[[], Turn[str]]) -> Iterator[Turn[str]]:
        yield begin_turn()

    def unload(self, turn: Turn[str]) -> None:
        turn.log("unloaded")

    def next_deadline_ms(self) -> int | None:
        return None

    def tick(self, turn: Turn[str]) -> None:
        turn.log("ticked")


def test_without_rules_for_transactions_records_apply_at_once_and_their_ends_change_nothing():
    words = Words()
    words.replay("a", 0, None)
    words.replay("b", 1, 7)
    words.end_transaction(7, is_commit=True)
    assert words.words == ["a", "b"]
