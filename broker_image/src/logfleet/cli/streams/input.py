"""Standard input, or a file, as lines and as records to send."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

import click
import msgspec

from logfleet.cli.output.tables import is_terminal
from logfleet.cli.progress import is_shown, progress
from logfleet.cli.record_text import Draft, LineCutter, TextError
from logfleet.cli.session import standard_input
from logfleet.records.record import Header

CHUNK_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 100 * 1024 * 1024  # Kafka: socket.request.max.bytes; no broker takes more


class Input(NamedTuple):
    """Where lines come from, and how they become records.

    read: makes a record of a line. is_plain: it would take the line as the value, and `key`. path:
    of a file, which is read `repeat` times; None: standard input. rate: records a second; None: as
    fast as they come.
    """

    delimiter: bytes
    read: Callable[[bytes], Draft]
    headers: Sequence[Header]
    partition: int | None
    key: bytes | None = None
    is_plain: bool = False
    path: Path | None = None
    repeat: int = 1
    rate: float | None = None

    def greet(self) -> None:
        """Print what to do, if a person is about to type."""
        if self.path is None and standard_input().isatty():
            click.echo("one record per line; Ctrl-D ends", err=True)

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """The lines, as many at a time as arrive together. Raises TextError, naming the line."""
        number = 0
        for _ in range(self.repeat):
            cutter = LineCutter(self.delimiter, LINE_BYTES_MAX)
            async for chunk in self._chunks():
                try:
                    lines = cutter.feed(chunk) if chunk else cutter.end()
                except TextError as error:
                    raise TextError(f"line {number + 1}: {error}") from error
                number += len(lines)
                yield lines

    async def drafts(self) -> AsyncIterator[tuple[int, Draft]]:
        """The records with the numbers of their lines, from 1.

        Raises TextError, naming the line.
        """
        loop = asyncio.get_running_loop()
        started, number = loop.time(), 0
        async for lines in self.lines():
            for line in lines:
                try:
                    draft = self.read(line)
                except TextError as error:
                    raise TextError(f"line {number + 1}: {error}") from error
                if self.rate is not None:
                    await asyncio.sleep(started + number / self.rate - loop.time())
                number += 1
                yield (
                    number,
                    msgspec.structs.replace(
                        draft,
                        headers=(*self.headers, *draft.headers),
                        partition=draft.partition if self.partition is None else self.partition,
                    ),
                )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if self.path is None:
            yield standard_input()
            return
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise click.ClickException(f"{self.path}: {error.strerror}") from error
        with file:
            yield file

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The bytes in chunks, and b"" at their end.

        It waits in the event loop, so Ctrl-C ends it. A file has a progress bar, as its size is
        known.
        """
        with self._opened() as file:
            descriptor = file.fileno()
            status = os.fstat(descriptor)
            is_file = stat.S_ISREG(status.st_mode)
            is_wanted = is_file and is_shown(output_is_shown=is_terminal())
            with progress("sending", status.st_size, is_wanted=is_wanted) as advance:
                while True:
                    await _readable(descriptor)
                    try:
                        chunk = os.read(descriptor, CHUNK_BYTES)
                    except OSError as error:
                        name = self.path or "standard input"
                        raise click.ClickException(f"{name}: {error.strerror}") from error
                    yield chunk
                    if not chunk:
                        return
                    advance(len(chunk))


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        await asyncio.sleep(0)  # epoll refuses regular files: they are always readable
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
