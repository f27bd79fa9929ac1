"""The formats of what a command prints (-o), the same for all commands.

What a command found is its JSON; tables and names are made of it. So every format has the same
rows, and a new command writes its columns down and nothing else.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from logfleet.cli.output.tables import echo_table
from logfleet.cli.root_options import FORMATS, Format, root_options

Command = TypeVar("Command", bound=Callable[..., Any])
Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table.

    value: the key of a row of the JSON, or a function of that row. wide: with -o wide only.
    """

    title: str
    value: str | Callable[[Row], object]
    is_wide: bool = False

    def of(self, row: Row) -> object:
        return row[self.value] if isinstance(self.value, str) else self.value(row)


class Output(NamedTuple):
    """Prints what a command found, in one format."""

    format: Format = Format.TABLE

    @property
    def is_json(self) -> bool:
        return self.format is Format.JSON

    @property
    def is_name(self) -> bool:
        return self.format is Format.NAME

    @property
    def is_wide(self) -> bool:
        return self.format is Format.WIDE

    def rows(
        self,
        rows: Sequence[Row],
        columns: Sequence[Column],
        *,
        name: str | Callable[[Row], object] = "name",
    ) -> None:
        """Print a list. name: the key of the row's name, or a function of the row."""
        name_of = Column("", name).of

        def table() -> None:
            shown = [each for each in columns if self.is_wide or not each.is_wide]
            cells = [[each.of(row) for each in shown] for row in rows]
            echo_table([each.title for each in shown], cells)

        self.document(list(rows), table, names=map(name_of, rows))

    def document(
        self, document: object, text: Callable[[], None], *, names: Iterable[object]
    ) -> None:
        """Print one thing. text: prints it for people. names: of what it is about, in order."""
        if self.is_json:
            echo_json(document)
        elif self.is_name:
            for name in names:
                click.echo(str(name))
        else:
            text()

    def note(self, sentence: str) -> None:
        """Print a hint on stderr, for people only."""
        if self.format in {Format.TABLE, Format.WIDE}:
            click.echo(sentence, err=True)


def output_option(command: Command) -> Command:
    """Add -o; the command gets `output`."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        help="For people, the same with more columns, names alone for scripts, all for programs.  "
        f"[default: {Format.TABLE.value}]",
    )
    @functools.wraps(command)
    def with_output(*args: Any, output: str | None, **options: Any) -> Any:
        chosen = output or root_options().output or Format.TABLE
        return command(*args, output=Output(Format(chosen)), **options)

    return with_output  # type: ignore[return-value]


def echo_json(value: object) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
