from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from logfleet.cli.fleet import drain as module
from logfleet.cli.main import cli


@pytest.mark.parametrize(
    "unmet, is_moved, code, calls, last",
    [
        ((), True, 0, ["plan", "cordon", "move"], ""),
        (("t-0: no place",), True, 1, ["plan"], "nothing was changed: not all can be moved away"),
        ((), False, 1, ["plan", "cordon", "move"], "`logfleet uncordon 3 4` goes back"),
    ],
)
def test_a_drain_cordons_only_what_can_be_moved_and_says_what_stays(
    unmet: tuple[str, ...],
    is_moved: bool,
    code: int,
    calls: list[str],
    last: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def run(*_: object) -> SimpleNamespace:
        done.append("cordon" if done else "plan")
        return SimpleNamespace(unmet=unmet)

    def carry_out(*_: object) -> bool:
        done.append("move")
        return is_moved

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "carry_out", carry_out)
    result = CliRunner().invoke(cli, ["drain", "3", "4"])
    assert (result.exit_code, done) == (code, calls)
    assert last in result.stderr
