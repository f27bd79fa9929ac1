"""Counts what was written, and reports it."""

import contextlib
import sys
import time
from collections.abc import Iterator

import click

from logfleet.cli.streams.printer import next_offsets_text, records_text
from logfleet.client.batches import Written
from logfleet.client.offsets import TopicPartition


class Tally:
    """How many records were written, and the next offset of each partition, as far as known."""

    def __init__(self) -> None:
        self.records = 0
        self.next_offsets: dict[TopicPartition, int] = {}

    def add(self, last: Written, count: int = 1) -> None:
        """Count records; last: where the last of them is."""
        self.records += count
        if last.offset >= 0:  # else the broker did not report it
            key = TopicPartition(last.topic, last.partition)
            self.next_offsets[key] = max(last.offset + 1, self.next_offsets.get(key, 0))

    @contextlib.contextmanager
    def reported(self, done: str, *, verbose: bool) -> Iterator[None]:
        """Report on stderr at the end, also after a failure. done: written, or sent.

        On a terminal the number of records; if verbose, seconds and next offsets too, wherever.
        """
        started = time.monotonic()
        try:
            yield
        finally:
            text = f"{records_text(self.records)} {done}"
            if verbose:
                seconds = time.monotonic() - started
                text += f" in {seconds:.1f} s; {next_offsets_text(self.next_offsets)}"
            if verbose or (sys.stderr is not None and sys.stderr.isatty()):
                click.echo(text, err=True)
