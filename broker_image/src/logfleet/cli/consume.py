"""`logfleet consume`: print records of topics on standard output."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Self

import click

from logfleet.cli.offsets import (
    PLACES,
    Place,
    find,
    isolation_option,
    led_partitions,
    offsets_at,
    partition_option,
    partitions_of,
    place_of,
)
from logfleet.cli.output.tables import is_terminal
from logfleet.cli.progress import is_shown, progress
from logfleet.cli.record_text import TextError, Writer, format_writer, unescape, write_json
from logfleet.cli.session import (
    Server,
    guard,
    record_output_option,
    run,
    server_options,
    standard_output,
)
from logfleet.client.cluster import Client
from logfleet.client.consumer import GROUP_MOVED_ON, GroupConsumer
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.fetcher import Fetched, Fetcher
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition

POLL_MS: Final = 500
LEADERS_SECONDS: Final = 1.0  # between two checks for missing leaders
PARTITIONS_SECONDS: Final = 60.0  # between two checks for added partitions
ENDS_SECONDS: Final = (
    1.0  # between two checks that --exit-at-end can still be reached, and the timeout of one
)
COMMIT_SECONDS: Final = 1.0
LAST_COMMIT_SECONDS: Final = 5.0


class Request(NamedTuple):
    """Where to read, and when to stop. partitions: empty for all."""

    topics: Sequence[str]
    partitions: Sequence[int]
    start: Place
    exit_at_end: bool
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class Printer:
    """Writes at most `count` records to standard output (None: all), and knows the next offsets.

    advance: called with the number of records just written.
    """

    def __init__(
        self, write: Writer, count: int | None, advance: Callable[[int], None] = lambda _: None
    ) -> None:
        self._write = write
        self._advance = advance
        self._left = count
        self.next_offsets: dict[TopicPartition, int] = {}

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
        count = 0
        for each in fetched:
            topic, partition = each.partition.topic, each.partition.partition
            for record in each.records():
                if self.done:
                    break
                out.write(self._write(topic, partition, record))
                written[each.partition] = record.offset + 1
                count += 1
                if self._left is not None:
                    self._left -= 1
            else:
                written[each.partition] = each.end_offset  # including what is not shown
        out.flush()
        self.next_offsets |= written
        self._advance(count)


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    help="Read as a member of this consumer group, from where it left off, and commit what was "
    "printed.",
)
@partition_option
@click.option(
    "-s",
    "--offset",
    "start",
    metavar="WHERE",
    callback=place_of,
    help=f"Where to begin: {PLACES}. With --group only beginning or end, for partitions without a "
    f"committed offset.  "
    "[default: end]",
)
@click.option("--from-beginning", is_flag=True, help="The same as --offset beginning.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many records.")
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="Stop when all that was there at the start is read."
)
@isolation_option
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Print the key and this before each value."
)
@click.option("-f", "--format", "format_", metavar="FORMAT", help=r"[default: %s\n]")
@click.option("--null", metavar="TEXT", default="", help="Stands for a key or value that is null.")
@server_options
@guard(lambda options: options["group"] is not None)  # it commits
@record_output_option
def consume(
    *,
    topics: tuple[str, ...],
    group: str | None,
    partitions: tuple[int, ...],
    start: Place | None,
    from_beginning: bool,
    count: int | None,
    exit_at_end: bool,
    isolation: IsolationLevel,
    key_separator: str | None,
    format_: str | None,
    null: str,
    as_json: bool,
    server: Server,
) -> None:
    """Print the records of topics, by default those that come from now on, until Ctrl-C.

    Partitions that are added meanwhile are found within a minute and read from their beginning.

    \b
    logfleet consume orders
    logfleet consume orders --from-beginning --exit-at-end -K:
    logfleet consume orders --offset -10 -f '%T %p/%o %k = %s\\n'
    logfleet consume orders --offset @2013-01-01T00:00:00Z -n 100 -o json | jq .value
    logfleet consume orders payments --group billing --from-beginning

    FORMAT has %t topic, %p partition, %o offset, %T timestamp in milliseconds, %k key, %s value, %K
    and %S their sizes (-1: null), %h headers as a=b,c=d, %% a percent sign, and \\n, \\t, \\r, \\0,
    \\xHH. With -o json each record is a line as `logfleet produce --json` reads it.

    Members of a group share the partitions. What was printed is committed each second and at the
    end, so that after a crash a record may be printed again, and none is left out.

    Exit codes: 0 done (--count, --exit-at-end), 1 failed (one line on stderr), 2 the command line
    is wrong, 130 Ctrl-C.
    """
    if from_beginning and start is not None:
        raise click.UsageError("--from-beginning and --offset both say where to begin, give one")
    start = start or Place(spec=OffsetSpec.EARLIEST if from_beginning else OffsetSpec.LATEST)
    if group is not None and partitions:
        raise click.UsageError("--group gives out partitions by itself, leave out --partition")
    if group is not None and start.spec is None:
        raise click.UsageError(
            "--offset with --group is beginning or end; `logfleet group reset-offsets` moves a "
            "group"
        )
    write = _writer(format_, key_separator, null, as_json=as_json)
    request = Request(list(dict.fromkeys(topics)), partitions, start, exit_at_end, isolation)

    async def work(client: Client) -> None:
        is_wanted = is_shown(output_is_shown=is_terminal())
        with progress("reading", count, is_wanted=is_wanted) as advance:
            printer = Printer(write, count, advance)
            if group is None:
                await read(client, request, printer)
            else:
                await _read_as_member(client, group, request, printer)

    run(server, work)


def _writer(format_: str | None, key_separator: str | None, null: str, *, as_json: bool) -> Writer:
    given = [
        name
        for name, value in (("--format", format_), ("--key-separator", key_separator))
        if value is not None
    ]
    if as_json and (given or null):
        raise click.UsageError(
            f"-o json has a form of its own, leave out {(given or ['--null'])[0]}"
        )
    if len(given) > 1:
        raise click.UsageError("--format says where the key stands, leave out --key-separator")
    if as_json:
        return write_json
    if key_separator is not None:
        format_ = f"%k{key_separator.replace('%', '%%')}%s\\n"
    try:
        return format_writer("%s\\n" if format_ is None else format_, null=unescape(null))
    except TextError as error:
        raise click.UsageError(str(error)) from error


# --- without a group


async def read(client: Client, request: Request, printer: Printer) -> None:
    """Print until the request is done. Raises ClientError.

    Partitions without a leader are waited for while the others are read. If all partitions are
    wanted, partitions added later are read from their beginning. With exit_at_end it waits for all
    leaders up to the client's `timeout_ms`, since the ends must be known.
    """
    keys = await partitions_of(client, request.topics, request.partitions)
    waiting = [] if request.exit_at_end else await _leaderless(client, keys)
    for key in waiting:
        click.echo(f"Warning: {key} has no leader; it is read once it has one", err=True)
    led_keys = [key for key in keys if key not in waiting]
    offsets = await find(client, led_keys, request.start, request.isolation)
    # if retention deletes what is next to be read, go on with the first record left
    fetcher = Fetcher(client, reset=OffsetSpec.EARLIEST, isolation=request.isolation)
    fetcher.assign(offsets)
    ends = await _Ends.found(fetcher) if request.exit_at_end else None
    loop = asyncio.get_running_loop()
    look_at = loop.time() + LEADERS_SECONDS
    wants_new = not (request.partitions or request.exit_at_end)
    look_for_new_at = loop.time() + PARTITIONS_SECONDS
    while not (printer.done or (ends is not None and ends.reached())):
        fetched = await fetcher.poll(POLL_MS)
        if ends is not None:
            await ends.check()
        printer.print(fetched)
        if waiting and loop.time() >= look_at:
            still = await _leaderless(client, waiting)
            led_keys = [key for key in waiting if key not in still]
            fetcher.add(await find(client, led_keys, request.start, request.isolation))
            waiting, look_at = still, loop.time() + LEADERS_SECONDS
        if wants_new and loop.time() >= look_for_new_at:
            new = sorted(await led_partitions(client, request.topics) - set(keys))
            fetcher.add(await offsets_at(client, new, OffsetSpec.EARLIEST))
            keys += new
            look_for_new_at = loop.time() + PARTITIONS_SECONDS


async def _leaderless(client: Client, keys: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The partitions that have no leader now. Raises ClientError."""
    led = await led_partitions(client, sorted({key.topic for key in keys}))
    return [key for key in keys if key not in led]


class _Ends:
    """The ends of a fetcher's partitions at the start: where its isolation stops reading."""

    def __init__(self, fetcher: Fetcher, ends: Mapping[TopicPartition, int]) -> None:
        self._fetcher, self._ends = fetcher, ends
        self._topic_ids: dict[str, bytes] = {}
        self._look_at = asyncio.get_running_loop().time() + ENDS_SECONDS

    @classmethod
    async def found(cls, fetcher: Fetcher) -> Self:
        """Read them from the leaders. Raises ClientError."""
        keys = list(fetcher.positions())
        ends = await offsets_at(fetcher.client, keys, OffsetSpec.LATEST, fetcher.isolation)
        return cls(fetcher, ends)

    def reached(self) -> bool:
        """Whether everything before them was read."""
        return all(at >= self._ends[key] for key, at in self._fetcher.positions().items())

    async def check(self) -> None:
        """Raise ClickException if records before the ends were lost, so it might never end.

        Retention alone moves no end. A leader that does not respond delays nothing here: the
        fetcher times out.
        """
        for topic, topic_id in self._fetcher.topic_ids().items():
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise click.ClickException(
                    f"topic {topic} was deleted and created again while it was read"
                )
        loop = asyncio.get_running_loop()
        if loop.time() < self._look_at:
            return
        positions = self._fetcher.positions()
        ahead = [key for key, at in positions.items() if at < self._ends[key]]
        ends: dict[TopicPartition, int] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_SECONDS):
                ends = await offsets_at(
                    self._fetcher.client, ahead, OffsetSpec.LATEST, self._fetcher.isolation
                )
        self._look_at = loop.time() + ENDS_SECONDS
        for key, end in ends.items():
            if end < self._ends[key]:
                raise click.ClickException(
                    f"{key} ended at {self._ends[key]} when it was begun, and ends at {end} now: "
                    f"its records are lost, "
                    "or the topic was created again"
                )


# --- in a group


async def _read_as_member(client: Client, group: str, request: Request, printer: Printer) -> None:
    await partitions_of(client, request.topics)
    assert request.start.spec is not None
    async with GroupConsumer(
        client, group, request.topics, reset=request.start.spec, isolation=request.isolation
    ) as consumer:
        member = _GroupConsumer(consumer, printer)
        try:
            await member.read(exit_at_end=request.exit_at_end)
        except (asyncio.CancelledError, OSError):
            # Ctrl-C, or stdout is closed: do not wait long for a broker that is gone
            with contextlib.suppress(ClientError, TimeoutError):
                async with asyncio.timeout(LAST_COMMIT_SECONDS):
                    await member.commit()
            raise
        if not await member.commit():
            click.echo(
                "Warning: the group rebalanced; the last records may be printed again",
                err=True,
            )


class _GroupConsumer:
    """A group member; commits what was printed and nothing else."""

    def __init__(self, consumer: GroupConsumer, printer: Printer) -> None:
        self._consumer, self._printer = consumer, printer
        self._generation = consumer.generation

    async def read(self, *, exit_at_end: bool) -> None:
        loop = asyncio.get_running_loop()
        ends: _Ends | None = None
        commit_at = loop.time() + COMMIT_SECONDS
        while not self._printer.done:
            fetched = await self._consumer.poll(POLL_MS)
            if self._consumer.generation != self._generation:
                # what was printed before belongs to revoked partitions, and was committed then
                self._generation = self._consumer.generation
                self._printer.next_offsets = self._first_offsets(fetched)
                ends = await _Ends.found(self._consumer.fetcher) if exit_at_end else None
            if ends is not None:
                await ends.check()
            self._printer.print(fetched)
            if loop.time() >= commit_at:
                await self.commit()
                commit_at = loop.time() + COMMIT_SECONDS
            if ends is not None and ends.reached():
                return

    def _first_offsets(self, fetched: Sequence[Fetched]) -> dict[TopicPartition, int]:
        """Where reading began in each partition. fetched: all that was read since.

        Committed even if nothing is read: records that arrive while nobody reads are for the next
        member.
        """
        offsets = self._consumer.fetcher.positions()
        return offsets | {each.partition: each.offset for each in reversed(fetched)}

    async def commit(self) -> bool:
        """Commit; False if the group has rebalanced, so that nothing could be committed."""
        if self._consumer.generation != self._generation:
            return not self._printer.next_offsets
        try:
            await self._consumer.commit(self._printer.next_offsets)
        except KafkaError as error:
            if error.code not in GROUP_MOVED_ON:
                raise
            return False
        return True
