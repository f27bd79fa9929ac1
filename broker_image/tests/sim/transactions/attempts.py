"""What the checker knows of one transaction of a simulated producer."""

import msgspec


class Attempt(msgspec.Struct, eq=False):
    """number: among all of a simulation. pair: producer id and epoch of its records.

    is_commit: what its producer asks for in the end, None while it has not asked.
    written: its records by partition, in their order. late: records that come after its end.
    is_refused: its producer got a final error: it is not committed.
    """

    transactional_id: str
    number: int
    pair: tuple[int, int]
    version: int
    is_commit: bool | None = None
    is_ended: bool = False
    is_refused: bool = False
    written: dict[int, list[str]] = msgspec.field(default_factory=dict)
    late: list[str] = msgspec.field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.written.values())) + len(self.late)

    def sent(self, index: int, value: str) -> None:
        self.written.setdefault(index, []).append(value)

    @property
    def is_committed(self) -> bool:
        """Whether its producer knows that it is."""
        return self.is_ended and self.is_commit is True
