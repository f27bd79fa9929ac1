import io
import sys

import pytest
from logfleet.cli.progress import is_shown, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "stderr, output_is_shown, shown",
    [(Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)],
)
def test_a_bar_is_for_a_terminal_on_which_nothing_else_goes_by(
    stderr: io.StringIO, output_is_shown: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    assert is_shown(output_is_shown=output_is_shown) is shown


@pytest.mark.parametrize("total", [4, None])
def test_the_bar_is_drawn_on_stderr(total: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress("sending", total, is_wanted=True) as advance:
        advance(1)
        advance(3)
    assert "sending" in stderr.getvalue()


def test_nothing_is_drawn_where_nobody_wants_it(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("sending", 4, is_wanted=False) as advance:
        advance(4)
    assert capsys.readouterr() == ("", "")
