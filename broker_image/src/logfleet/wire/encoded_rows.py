"""A long answer, encoded row by row as its rows are made: between two of them the loop may do something else, and only bytes are kept.

For a message whose last field is an array, with no tagged field behind it.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from logfleet.wire.codec import encoder
from logfleet.wire.error_codes import error_finder
from logfleet.wire.primitives import uvarint
from logfleet.wire.schema import load_table

COUNT_BYTES = 4
NO_ROWS = b"\1"
NO_TAGS = b"\0"


class EncodedRow(msgspec.Struct, frozen=True):
    """A row's bytes and the error codes in it, NONE left out."""

    data: bytes
    errors: Sequence[int]


class EncodedRows:
    """An answer with its rows encoded in one version. A row that is added twice is kept once.

    message: the answer without rows; its other fields may be set until `parts` is called. size: bytes of the rows.
    errors: their error codes, NONE left out.
    """

    def __init__(self, message: msgspec.Struct, version: int) -> None:
        cls = type(message)
        schema = load_table()[cls.__name__]
        array = schema.fields[-1]
        assert array.is_array, f"{cls.__name__} does not end with its rows"
        self.message = message
        self.size = 0
        self.errors: list[int] = []
        self._rows: list[bytes] = []
        self._array = array.python_name
        self._flexible = schema.is_flexible(version)
        self._tail_bytes = len(NO_TAGS) if self._flexible else 0
        self._encode = encoder(cls, version)
        self._errors_in = error_finder(cls.__name__)
        self._alone = cls()
        # The count before the rows takes as many bytes for no row as for one.
        self._row_start = len(self._whole(self._alone)) - self._tail_bytes

    def encode(self, row: msgspec.Struct) -> EncodedRow:
        """One row by itself; raises UnencodableMessage."""
        setattr(self._alone, self._array, [row])
        whole = self._whole(self._alone)
        end = len(whole) - self._tail_bytes
        return EncodedRow(whole[self._row_start : end], self._errors_in(self._alone))

    def add(self, row: EncodedRow) -> None:
        """Put a row behind the others."""
        self._rows.append(row.data)
        self.size += len(row.data)
        self.errors += row.errors

    def parts(self) -> list[bytes]:
        """The whole message, as buffers to be sent one after another; none is empty."""
        empty = self._whole(self.message)
        count = len(self._rows)
        if self._flexible:
            head = empty[: -len(NO_ROWS + NO_TAGS)] + uvarint(count + 1)
            return [head, *self._rows, NO_TAGS]
        head = empty[:-COUNT_BYTES] + count.to_bytes(COUNT_BYTES, "big")
        return [head, *self._rows]

    def _whole(self, message: msgspec.Struct) -> bytes:
        (whole,) = self._encode(message)
        return cast("bytes", whole)
