import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from logfleet.cli.completion.commands import SHELLS, path_of
from logfleet.cli.main import cli


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_the_program(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"_LOGFLEET_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    "shell, path",
    [
        ("bash", "data/bash-completion/completions/logfleet"),
        ("fish", "config/fish/completions/logfleet.fish"),
        ("zsh", "zdot/.zfunc/_logfleet"),
    ],
)
def test_an_installed_script_lies_where_the_shell_looks(
    shell: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ZDOTDIR", str(tmp_path / "zdot"))
    done = CliRunner().invoke(cli, ["completion", shell, "--install"])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{tmp_path / path} is written; ")
    printed = CliRunner().invoke(cli, ["completion", shell]).stdout
    assert (tmp_path / path).read_text() == printed


def test_without_variables_it_lies_in_the_home_directory() -> None:
    assert [str(path_of(shell, {}, Path("/h"))) for shell in SHELLS] == [
        "/h/.local/share/bash-completion/completions/logfleet",
        "/h/.zfunc/_logfleet",
        "/h/.config/fish/completions/logfleet.fish",
    ]


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/dev/null")
    done = CliRunner().invoke(cli, ["completion", "bash", "--install"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: the script cannot be written: ")


def test_bash_takes_the_script(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(cli, ["completion", "bash"]).stdout)
    subprocess.run(["bash", "-n", str(script)], check=True)
