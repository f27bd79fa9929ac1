"""A long response, encoded row by row as the rows are made.

So the loop can do other things in between, and only bytes are kept. For messages whose last field
is an array, without tagged fields behind it.
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
    """The bytes of a row, and its error codes except NONE."""

    data: bytes
    errors: Sequence[int]


class EncodedRows:
    """A response with encoded rows, in one version. A row that is added twice shares its bytes.

    message: the response without rows; its other fields may be set until `parts` is called. size:
    bytes of the rows. errors: their error codes except NONE.
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
        """Encode one row; raises UnencodableMessage."""
        setattr(self._alone, self._array, [row])
        whole = self._whole(self._alone)
        end = len(whole) - self._tail_bytes
        return EncodedRow(whole[self._row_start : end], self._errors_in(self._alone))

    def add(self, row: EncodedRow) -> None:
        """Append a row."""
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
