import json

import click
import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli
from logfleet.cli.output.formats import Column, Output, output_option
from logfleet.cli.root_options import RootOptions

ROWS = [{"name": "a", "n": 1, "deep": None}, {"name": "b", "n": 2, "deep": [3, 4]}]
COLUMNS = [Column("NAME", "name"), Column("TWICE", lambda row: row["n"] * 2)]
WIDE = Column("DEEP", "deep", is_wide=True)


@click.command()
@output_option
def listing(output: Output) -> None:
    output.rows(ROWS, [*COLUMNS, WIDE])


def shown(*arguments: str, before: RootOptions | None = None) -> list[str]:
    done = CliRunner().invoke(listing, arguments, obj=before)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_a_pipe_gets_a_table_unless_it_is_otherwise_asked_for() -> None:
    assert shown() == shown("-o", "table") == ["NAME  TWICE", "a     2", "b     4"]


def test_a_wide_table_has_more_columns() -> None:
    assert shown("-o", "wide") == ["NAME  TWICE  DEEP", "a     2      -", "b     4      3,4"]


def test_names_stand_alone_one_per_line() -> None:
    assert shown("-o", "name") == ["a", "b"]


def test_json_has_every_field_whatever_the_columns_are() -> None:
    assert json.loads("".join(shown("-o", "json"))) == ROWS


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    done = CliRunner().invoke(listing, ["-o", "yaml"])
    assert done.exit_code == 2
    assert "'table', 'wide', 'name', 'json'" in done.stderr


def test_the_format_may_stand_before_the_sub_command_and_counts_less_there() -> None:
    assert shown(before=RootOptions(output="name")) == ["a", "b"]
    assert shown("-o", "name", before=RootOptions(output="json")) == ["a", "b"]


@pytest.mark.parametrize(
    "arguments", [("doctor", "-o", "name"), ("-o", "name", "doctor")], ids=["behind", "before"]
)
def test_a_command_of_the_program_takes_it_in_both_places(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*arguments, "--override", "no.such=1", "--override", "x"])
    assert done.stdout == "configuration\n"


def test_one_thing_is_printed_for_people_by_its_own_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Output()
    output.document({"a": 1}, lambda: click.echo("one a"), names=["a"])
    assert capsys.readouterr().out == "one a\n"
