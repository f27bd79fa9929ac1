"""Writes what was fetched to standard output, in blocks, and knows the next offsets."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from logfleet.cli.session import standard_output
from logfleet.cli.streams.formats import Writer
from logfleet.client.fetcher import Fetched
from logfleet.client.offsets import TopicPartition
from logfleet.records.batch import BatchHeader
from logfleet.records.columns import read_columns
from logfleet.records.record import read_payload
from logfleet.records.search import Search


class _Block(NamedTuple):
    """Text of some records; next_offset: behind the last of them."""

    text: bytes
    records: int
    next_offset: int


class Printer:
    """Writes at most `count` records to standard output (None: all), and knows the next offsets.

    advance: called with the number of records just written. search: only records that it wants.
    """

    def __init__(
        self,
        writer: Writer,
        count: int | None,
        advance: Callable[[int], None] = lambda _: None,
        search: Search | None = None,
    ) -> None:
        self._writer = writer
        self._advance = advance
        self._left = count
        self._search = search
        self.next_offsets: dict[TopicPartition, int] = {}
        self.limits: dict[TopicPartition, int] = {}
        """Offsets from which on nothing is printed."""
        self.records = 0
        self.bytes = 0

    @property
    def done(self) -> bool:
        """Whether `count` is reached."""
        return self._left == 0

    def print(self, fetched: Sequence[Fetched]) -> None:
        """Write and flush.

        Raises RecordsError if a batch is corrupt, OSError if stdout is closed.
        """
        out = standard_output()
        written: dict[TopicPartition, int] = {}
        count = size = 0
        for each in fetched:
            for block in self._blocks(each):
                out.write(block.text)
                written[each.partition] = block.next_offset
                count += block.records
                size += len(block.text)
                if self._left is not None:
                    self._left -= block.records
            if not self.done:
                # including what is not shown
                written[each.partition] = self._end(each)
        out.flush()
        self.next_offsets |= written
        self.records += count
        self.bytes += size
        self._advance(count)

    def _end(self, fetched: Fetched) -> int:
        """The offset at which printing of this ends."""
        limit = self.limits.get(fetched.partition, fetched.end_offset)
        return max(fetched.offset, min(fetched.end_offset, limit))

    def _blocks(self, fetched: Fetched) -> Iterator[_Block]:
        """The text of the wanted records, as many as are left, batch by batch."""
        end = self._end(fetched)
        for position, header in fetched.checked_batches():
            if self.done or header.base_offset >= end:
                return
            block = self._whole(fetched, position, header, end)
            if block is None:
                block = self._wanted(fetched, position, end)
            if block.records:
                yield block

    def _whole(
        self, fetched: Fetched, position: int, header: BatchHeader, end: int
    ) -> _Block | None:
        """The text of a batch that is printed from end to end, without an object for each record.

        None if it is not, or if the format or the records need more than columns.
        """
        if (
            not self._writer.takes_columns
            or self._search is not None
            or (self._left is not None and header.record_count > self._left)
            or header.base_offset < fetched.offset
            or header.next_offset > end
        ):
            return None
        _, payload = read_payload(fetched.batches, position)
        columns = read_columns(payload, header.record_count)
        if columns is None:
            return None
        partition = fetched.partition
        text = self._writer.columns(partition.topic, partition.partition, columns)
        return _Block(text, header.record_count, header.next_offset)

    def _wanted(self, fetched: Fetched, position: int, end: int) -> _Block:
        """The text of the wanted records of a batch."""
        topic, partition = fetched.partition.topic, fetched.partition.partition
        texts: list[bytes] = []
        next_offset = fetched.offset
        for record in fetched.batch_records(position, self._search):
            if record.offset >= end or len(texts) == self._left:
                break
            texts.append(self._writer.record(topic, partition, record))
            next_offset = record.offset + 1
        return _Block(b"".join(texts), len(texts), next_offset)


@contextlib.contextmanager
def summary(printer: Printer, *, is_wanted: bool) -> Iterator[None]:
    """If it is wanted, print on stderr at the end how much was printed, even after Ctrl-C."""
    started = time.monotonic()
    try:
        yield
    finally:
        if is_wanted:
            seconds = time.monotonic() - started
            click.echo(
                f"{records_text(printer.records)}, {printer.bytes:,} bytes, {seconds:.1f} s; "
                f"{next_offsets_text(printer.next_offsets)}",
                err=True,
            )


def records_text(count: int) -> str:
    """As `1 record` or `2,000 records`."""
    return f"{count:,} record{'' if count == 1 else 's'}"


def next_offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """The next offset of each partition, in one line."""
    each = ", ".join(f"{key} {offset}" for key, offset in sorted(offsets.items()))
    return f"next offsets: {each or 'none'}"
