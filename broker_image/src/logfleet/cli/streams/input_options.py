"""The options of `logfleet produce` that say how lines become records."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from logfleet.cli.record_text import TextError, draft_reader, read_json, unescape
from logfleet.cli.streams.input import Input
from logfleet.cli.streams.options import decorated
from logfleet.records.record import Header

Command = TypeVar("Command", bound=Callable[..., Any])


def _bytes_of(ctx: click.Context, option: click.Parameter, value: str | None) -> bytes | None:
    try:
        return None if value is None else unescape(value)
    except TextError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error


def _headers_of(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> list[Header]:
    headers: list[Header] = []
    for value in values:
        name, equals, content = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r}: write NAME=VALUE", ctx=ctx, param=option)
        try:
            name.encode()
        except UnicodeEncodeError as error:
            # a value is bytes, a name is text (Kafka: RecordHeader)
            raise click.BadParameter(
                f"{value!r}: the name is not UTF-8", ctx=ctx, param=option
            ) from error
        headers.append((name, content.encode(errors="surrogateescape")))
    return headers


_OPTIONS: Final = (
    click.option(
        "-K",
        "--key-separator",
        metavar="TEXT",
        callback=_bytes_of,
        help="The text before it is the record's key; a line without it is an error.",
    ),
    click.option(
        "-k", "--key", metavar="TEXT", callback=_bytes_of, help="The key of every record."
    ),
    click.option(
        "-H",
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_headers_of,
        help="A header of every record; may be given again and again.",
    ),
    click.option(
        "-p",
        "--partition",
        type=click.IntRange(0),
        help="[default: by the key, as Kafka's clients]",
    ),
    click.option(
        "-D",
        "--delimiter",
        default=r"\n",
        show_default=True,
        metavar="TEXT",
        callback=_bytes_of,
        help="Ends a record.",
    ),
    click.option(
        "--null",
        metavar="TEXT",
        callback=_bytes_of,
        help="A key or value of just this is null (a tombstone); '' means empty ones.",
    ),
    click.option("--json", "from_json", is_flag=True, help="Each line is a record in JSON."),
    click.option(
        "--file",
        "path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Read this file instead of standard input.",
    ),
    click.option(
        "--repeat",
        type=click.IntRange(1),
        metavar="N",
        help="Read --file so many times.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(0, min_open=True),
        metavar="N",
        help="Send no more than N records a second.",
    ),
)


def input_options(command: Command) -> Command:
    """Add them; the command gets `source`."""

    @functools.wraps(command)
    def with_input(
        *args: Any,
        key_separator: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
        delimiter: bytes,
        null: bytes | None,
        from_json: bool,
        path: Path | None,
        repeat: int | None,
        rate: float | None,
        **options: Any,
    ) -> Any:
        if delimiter == b"" or key_separator == b"":
            raise click.UsageError("an empty text separates nothing: --delimiter, --key-separator")
        if key is not None and key_separator is not None:
            raise click.UsageError("--key and --key-separator both say where the key is, give one")
        if from_json and (key, key_separator, null) != (None, None, None):
            raise click.UsageError(
                "--json says where key and null are, leave out the other options"
            )
        if repeat is not None and path is None:
            raise click.UsageError("--repeat: of which --file?")
        read = draft_reader(separator=key_separator, null=null, key=key)
        source = Input(
            delimiter,
            read_json if from_json else read,
            headers,
            partition,
            key,
            not from_json and key_separator is None and null is None,
            path,
            repeat or 1,
            rate,
        )
        return command(*args, source=source, **options)

    return decorated(with_input, _OPTIONS)  # type: ignore[no-any-return]
