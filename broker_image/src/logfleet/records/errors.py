"""Errors in the bytes of a record batch.

    RecordsError
    |-- CorruptRecords          bytes that no correct producer sends: lengths, counts, checksum ...
    `-- DecompressedTooLarge    correct or not, it would expand beyond the caller's budget

Both concern the *content*: a receiver of the bytes responds with an error code, a reader of a file
treats the log as damaged.
"""


class RecordsError(Exception):
    """Base class of errors from reading records."""


class CorruptRecords(RecordsError):
    """The bytes contradict their lengths, counts or checksum."""


class DecompressedTooLarge(RecordsError):
    """The records expand beyond the byte budget; expansion stopped there."""

    def __init__(self, budget_bytes: int) -> None:
        super().__init__(f"records expand beyond {budget_bytes} bytes")
        self.budget_bytes = budget_bytes
