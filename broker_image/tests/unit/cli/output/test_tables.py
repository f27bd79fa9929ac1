import sys

import pytest
from logfleet.cli.output import tables
from logfleet.cli.output.tables import cell_text, echo_table


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("NAME", "N"), [("a-long-name", 1), ("b", "")])
    assert capsys.readouterr().out == "NAME         N\na-long-name  1\nb\n"


def test_a_table_without_rows_has_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("NAME", "N"), [])
    assert capsys.readouterr().out == "NAME  N\n"


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        ([1, 2], "1,2"),
        ((), "-"),
        (0, "0"),
        ("", ""),
    ],
)
def test_a_cell_shows_a_value_of_the_json_to_people(value: object, text: str) -> None:
    assert cell_text(value) == text


@pytest.mark.parametrize("no_color", [True, False])
def test_a_table_on_a_terminal_is_drawn_and_has_no_colour_if_nobody_wants_one(
    no_color: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    echo_table(("NAME",), [("a",)])
    out = capsys.readouterr().out
    assert "a" in out
    assert "\x1b[3" not in out  # no colour by itself
    assert sys.modules.get("rich") is not None
