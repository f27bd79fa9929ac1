"""The options of `logfleet consume`: which records, and how they look."""

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from logfleet.cli.offsets import PLACES, Place, place_of
from logfleet.cli.output.tables import is_terminal
from logfleet.cli.record_text import TextError, unescape
from logfleet.cli.root_options import Format as OutputFormat
from logfleet.cli.root_options import root_options
from logfleet.cli.streams.decoding import DECODERS, Decoder, decoder_of
from logfleet.cli.streams.formats import Format, JsonWriter, Writer
from logfleet.cli.times import TIMES, time_of
from logfleet.client.offsets import OffsetSpec
from logfleet.records.search import Search
from logfleet.records.where import Where, WhereError, json_document

Command = TypeVar("Command", bound=Callable[..., Any])


class Range(NamedTuple):
    """Where reading begins and ends. records: so many; None: no limit.

    until_ms: exclusive; None: for ever.
    """

    start: Place
    records: int | None
    exit_at_end: bool
    until_ms: int | None


def decorated(command: Callable[..., Any], options: Iterable[Callable[[Any], Any]]) -> Any:
    """The command with these options, which --help lists in this order."""
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def _past(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    found = time_of(ctx, option, value)
    if found is not None and found > _now_ms():
        raise click.BadParameter(f"{value!r}: lies ahead", ctx=ctx, param=option)
    return found


_RANGE_OPTIONS: Final = (
    click.option(
        "-s",
        "--offset",
        "start",
        metavar="WHERE",
        callback=place_of,
        help=f"Where to begin: {PLACES}. With --group only beginning or end, for partitions "
        "without a committed offset.  [default: end]",
    ),
    click.option("--from-beginning", is_flag=True, help="The same as --offset beginning."),
    click.option(
        "--tail",
        type=click.IntRange(1),
        metavar="N",
        help="Begin with the last N records of each partition; the same as --offset -N.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        callback=time_of,
        help=f"Begin with what is younger: {TIMES}.",
    ),
    click.option(
        "--until",
        "until_ms",
        metavar="TIME",
        callback=_past,
        help="Stop before the first record of each partition that is as young, written as for "
        "--since.",
    ),
    click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many records."),
    click.option(
        "-e",
        "--exit-at-end",
        is_flag=True,
        help="Stop when all that was there at the start is read.",
    ),
)


def range_options(command: Command) -> Command:
    """Add the options of where reading begins and ends; the command gets `range_`."""

    @functools.wraps(command)
    def with_range(
        *args: Any,
        start: Place | None,
        from_beginning: bool,
        tail: int | None,
        since: int | None,
        until_ms: int | None,
        count: int | None,
        exit_at_end: bool,
        **options: Any,
    ) -> Any:
        begins = {
            "--from-beginning": Place(spec=OffsetSpec.EARLIEST) if from_beginning else None,
            "--offset": start,
            "--tail": None if tail is None else Place(last=tail),
            "--since": None if since is None else Place(time_ms=since),
        }
        given = {name: place for name, place in begins.items() if place is not None}
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} both say where to begin, give one")
        place = next(iter(given.values()), Place(spec=OffsetSpec.LATEST))
        range_ = Range(place, count, exit_at_end, until_ms)
        return command(*args, range_=range_, **options)

    return decorated(with_range, _RANGE_OPTIONS)  # type: ignore[no-any-return]


class Searched(NamedTuple):
    """What records must hold to be printed."""

    grep: str | None
    key_grep: str | None
    where: str | None

    def search(self, decoder: Decoder | None) -> Search | None:
        """The search, None for all records. Raises UsageError."""
        if self == (None, None, None):
            return None
        document = json_document if decoder is None else decoder.document
        try:
            where = None if self.where is None else Where(self.where, document=document)
        except WhereError as error:
            raise click.UsageError(f"--where: {error}") from error
        return Search(_bytes_of(self.grep), _bytes_of(self.key_grep), where)


def _bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")


_SEARCH_OPTIONS: Final = (
    click.option("--grep", metavar="TEXT", help="Only records whose value holds this text."),
    click.option("--key-grep", metavar="TEXT", help="Only records whose key holds this text."),
    click.option(
        "--where",
        metavar="CONDITION",
        help="Only records for which it holds, as 'value.dest == \"LAX\" and value.delay > 30'.",
    ),
)


def search_options(command: Command) -> Command:
    """Add the options of which records to print; the command gets `searched`."""

    @functools.wraps(command)
    def with_search(
        *args: Any, grep: str | None, key_grep: str | None, where: str | None, **options: Any
    ) -> Any:
        return command(*args, searched=Searched(grep, key_grep, where), **options)

    return decorated(with_search, _SEARCH_OPTIONS)  # type: ignore[no-any-return]


class Form(NamedTuple):
    """How records look. output: text, json or pretty."""

    output: str
    format: str | None
    key_separator: str | None
    null: str
    decoder: Decoder | None

    def writer(self) -> Writer:
        """What writes them. Raises UsageError if options contradict one another."""
        given = [
            name
            for name, value in (
                ("--format", self.format),
                ("--key-separator", self.key_separator),
                ("--null", self.null or None),
            )
            if value is not None
        ]
        if self.output != "text" and given:
            raise click.UsageError(f"-o {self.output} has a form of its own, leave out {given[0]}")
        if self.format is not None and self.key_separator is not None:
            raise click.UsageError("--format says where the key stands, leave out --key-separator")
        if self.output == "json":
            return JsonWriter(None if self.decoder is None else self.decoder.json)
        if self.output == "pretty":
            from logfleet.cli.streams.pretty import PrettyWriter

            document = json_document if self.decoder is None else self.decoder.document
            return PrettyWriter(has_colours=is_terminal(), document=document, now_ms=_now_ms)
        return self._text_writer()

    def _text_writer(self) -> Writer:
        format_ = r"%s\n" if self.format is None else self.format
        if self.key_separator is not None:
            literal = self.key_separator.replace("%", "%%").replace("{", r"\x7b")
            format_ = rf"%k{literal}%s\n"
        try:
            return Format(
                format_,
                null=unescape(self.null),
                value_text=None if self.decoder is None else self.decoder.text,
                now_ms=_now_ms,
            )
        except TextError as error:
            raise click.UsageError(str(error)) from error


_FORM_OPTIONS: Final = (
    click.option(
        "-K", "--key-separator", metavar="TEXT", help="Print the key and this before each value."
    ),
    click.option("-f", "--format", "format_", metavar="FORMAT", help=r"[default: %s\n]"),
    click.option(
        "--null", metavar="TEXT", default="", help="Stands for a key or value that is null."
    ),
    click.option(
        "--decode",
        type=click.Choice(DECODERS),
        help="Read values in this format and write them as JSON; --where reads them as well. auto "
        "finds out text, JSON and MessagePack, and writes the rest in hex.",
    ),
    click.option(
        "--schema",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The schema of --decode avro, in JSON.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", "pretty"]),
        help="As --format says, for programs, or for people.  [default: text]",
    ),
)


def form_options(command: Command) -> Command:
    """Add the options of how records look; the command gets `form`."""

    @functools.wraps(command)
    def with_form(
        *args: Any,
        output: str | None,
        format_: str | None,
        key_separator: str | None,
        null: str,
        decode: str | None,
        schema: Path | None,
        **options: Any,
    ) -> Any:
        decoder = _decoder(decode, schema)
        if output is None:
            output = "json" if root_options().output == OutputFormat.JSON else "text"
        form = Form(output, format_, key_separator, null, decoder)
        return command(*args, form=form, **options)

    return decorated(with_form, _FORM_OPTIONS)  # type: ignore[no-any-return]


def _decoder(name: str | None, schema: Path | None) -> Decoder | None:
    if schema is not None and name != "avro":
        raise click.UsageError("--schema is for --decode avro")
    if name is None:
        return None
    try:
        return decoder_of(name, schema, lambda line: click.echo(f"Warning: {line}", err=True))
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "--decode avro needs fastavro, which is not installed: pip install 'logfleet[avro]'"
        ) from error
    except Exception as error:  # fastavro has many for a schema that is none
        raise click.UsageError(f"--schema {schema}: {error}") from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
