"""`logfleet consume`: print records of topics on standard output."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

import click

from logfleet.cli.completion.callbacks import complete
from logfleet.cli.offsets import (
    Place,
    find,
    isolation_option,
    led_partitions,
    offsets_at,
    partition_option,
    partitions_of,
)
from logfleet.cli.output.tables import is_terminal
from logfleet.cli.progress import is_shown, progress
from logfleet.cli.session import Server, guard, run, server_options
from logfleet.cli.streams.options import (
    Form,
    Range,
    Searched,
    form_options,
    range_options,
    search_options,
)
from logfleet.cli.streams.printer import Printer, summary
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
    """Where to read, and when to stop. partitions: empty for all.

    until_ms: stop before records of this time; None: go on.
    """

    topics: Sequence[str]
    partitions: Sequence[int]
    start: Place
    exit_at_end: bool
    isolation: IsolationLevel
    until_ms: int | None = None

    @property
    def has_end(self) -> bool:
        """Whether reading ends by itself, at offsets that are known at the start."""
        return self.exit_at_end or self.until_ms is not None

    def check_group(self) -> None:
        """Raise UsageError if it is not for the members of a group."""
        if self.partitions:
            raise click.UsageError("--group gives out partitions by itself, leave out --partition")
        if self.start.spec is None:
            raise click.UsageError(
                "--offset with --group is beginning or end; `logfleet group reset-offsets` moves a "
                "group"
            )


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete("topics")
)
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    shell_complete=complete("groups"),
    help="Read as a member of this consumer group, from where it left off, and commit what was "
    "printed.",
)
@partition_option
@range_options
@isolation_option
@search_options
@form_options
@click.option(
    "-v", "--verbose", is_flag=True, help="At the end: records, bytes, seconds, next offsets."
)
@server_options
@guard(lambda options: options["group"] is not None)  # it commits
def consume(
    *,
    topics: tuple[str, ...],
    group: str | None,
    partitions: tuple[int, ...],
    range_: Range,
    isolation: IsolationLevel,
    searched: Searched,
    form: Form,
    verbose: bool,
    server: Server,
) -> None:
    """Print the records of topics, by default those that come from now on, until Ctrl-C.

    Partitions that are added meanwhile are found within a minute and read from their beginning.

    \b
    logfleet consume orders --from-beginning --exit-at-end -K:
    logfleet consume orders --tail 10 -e -f '%T{iso} %p/%o %k = %s\\n'
    logfleet consume orders --since 10m --until 14:00 -o json | jq .value
    logfleet consume orders --from-beginning -e --grep LAX --where 'value.delay > 30'
    logfleet consume orders payments --group billing --from-beginning

    FORMAT has %t topic, %p partition, %o offset, %T timestamp in milliseconds (%T{iso}, %T{ago}),
    %k key, %s value (%s{hex}, %s{base64}, %s{json}, %s{len}, the same for %k), %K and %S their
    sizes (-1: null), %h headers as a=b,c=d, %H{name} one of them, %% a percent sign, and \\n, \\t,
    \\r, \\0, \\xHH. With -o json each record is a line as `logfleet produce --json` reads it.

    CONDITION is in Python's notation: key, value, headers, timestamp, offset, partition, fields of
    JSON as value.a.b or value["a"][0], constants, comparisons, in, and, or, not.

    Members of a group share the partitions. What was printed is committed each second and at the
    end, so that after a crash a record may be printed again, and none is left out.

    Exit codes: 0 done (--count, --exit-at-end, --until), 1 failed (one line on stderr), 2 the
    command line is wrong, 130 Ctrl-C.
    """
    writer, search = form.writer(), searched.search(form.decoder)
    request = Request(
        list(dict.fromkeys(topics)),
        partitions,
        range_.start,
        range_.exit_at_end,
        isolation,
        range_.until_ms,
    )
    if group is not None:
        request.check_group()

    async def work(client: Client) -> None:
        is_wanted = is_shown(output_is_shown=is_terminal())
        with progress("reading", range_.records, is_wanted=is_wanted) as advance:
            printer = Printer(writer, range_.records, advance, search)
            with summary(printer, is_wanted=verbose):
                if group is None:
                    await read(client, request, printer)
                else:
                    await _read_as_member(client, group, request, printer)

    run(server, work)


# --- without a group


async def read(client: Client, request: Request, printer: Printer) -> None:
    """Print until the request is done. Raises ClientError.

    Partitions without a leader are waited for while the others are read. If all partitions are
    wanted, partitions added later are read from their beginning. With an end it waits for all
    leaders up to the client's `timeout_ms`, since the ends must be known.
    """
    keys = await partitions_of(client, request.topics, request.partitions)
    waiting = [] if request.has_end else await _leaderless(client, keys)
    for key in waiting:
        click.echo(f"Warning: {key} has no leader; it is read once it has one", err=True)
    led_keys = [key for key in keys if key not in waiting]
    offsets = await find(client, led_keys, request.start, request.isolation)
    # if retention deletes what is next to be read, go on with the first record left
    fetcher = Fetcher(client, reset=OffsetSpec.EARLIEST, isolation=request.isolation)
    fetcher.assign(offsets)
    ends = await _Ends.found(fetcher, printer, request.until_ms) if request.has_end else None
    if ends is None and request.start.spec is OffsetSpec.LATEST and is_terminal():
        click.echo(
            f"waiting at the end of {len(offsets)} partitions; --from-beginning prints what is "
            "there, Ctrl-C ends",
            err=True,
        )
    loop = asyncio.get_running_loop()
    look_at = loop.time() + LEADERS_SECONDS
    wants_new = not (request.partitions or request.has_end)
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
    async def found(cls, fetcher: Fetcher, printer: Printer, until_ms: int | None) -> Self:
        """Read them from the leaders. Raises ClientError.

        until_ms: where younger records begin is an end as well, beyond which nothing is printed.
        """
        keys = list(fetcher.positions())
        ends = await offsets_at(fetcher.client, keys, OffsetSpec.LATEST, fetcher.isolation)
        if until_ms is not None:
            younger = await offsets_at(fetcher.client, keys, until_ms, fetcher.isolation)
            ends = {
                key: min(end, younger[key]) if younger[key] >= 0 else end
                for key, end in ends.items()
            }
            printer.limits = ends
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
            await member.read(request)
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

    async def read(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        ends: _Ends | None = None
        commit_at = loop.time() + COMMIT_SECONDS
        while not self._printer.done:
            fetched = await self._consumer.poll(POLL_MS)
            if self._consumer.generation != self._generation:
                # what was printed before belongs to revoked partitions, and was committed then
                self._generation = self._consumer.generation
                self._printer.next_offsets = self._first_offsets(fetched)
                if request.has_end:
                    ends = await _Ends.found(
                        self._consumer.fetcher, self._printer, request.until_ms
                    )
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
