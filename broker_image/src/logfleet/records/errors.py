"""What can be wrong with the bytes of a record batch.

    RecordsError
    |-- CorruptRecords          bytes that no correct producer sends: lengths, counts, checksum, compressed stream
    `-- DecompressedTooLarge    correct or not, it would expand beyond the caller's budget

Both are about *content*; whoever received the bytes answers with an error code, whoever read them from disk treats
the log as damaged.
"""


class RecordsError(Exception):
    """Base of what reading records raises."""


class CorruptRecords(RecordsError):
    """The bytes do not hold what their lengths, counts or checksum claim."""


class DecompressedTooLarge(RecordsError):
    """The records expand beyond the byte budget; nothing beyond the budget was materialised."""

    def __init__(self, budget_bytes: int) -> None:
        super().__init__(f"records expand beyond {budget_bytes} bytes")
        self.budget_bytes = budget_bytes
