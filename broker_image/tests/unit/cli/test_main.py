import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from logfleet import __version__
from logfleet.cli.main import COMMANDS, cli


def test_every_command_can_be_asked_for_help() -> None:
    runner = CliRunner()
    listed = runner.invoke(cli, ["--help"])
    for command, (_, line) in COMMANDS.items():
        assert f"  {command} " in listed.output
        assert line in listed.output
        helped = runner.invoke(cli, [command, "--help"])
        assert helped.exit_code == 0
        assert len(helped.output) > 100


def test_the_list_of_commands_imports_none_of_them() -> None:
    for module, _ in COMMANDS.values():
        sys.modules.pop(module, None)
    assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
    assert not [module for module, _ in COMMANDS.values() if module in sys.modules]


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["no-such-command"], "Error: No such command 'no-such-command'; see logfleet --help\n"),
        (["apply"], "Error: Missing option '-f' / '--filename'; see logfleet apply --help\n"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(cli, arguments, prog_name="logfleet")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_no_command_is_answered_with_the_list_of_them() -> None:
    result = CliRunner().invoke(cli, [])
    assert result.exit_code == 2
    assert "apply" in result.output


def test_ctrl_c_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "get_command", lambda *_: interrupted)
    result = CliRunner().invoke(cli, ["anything"])
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_a_broker_loads_no_library_for_terminals_and_goes_on_with_garbage_collected() -> None:
    program = (
        "import gc, sys\n"
        "from logfleet.cli.late_imports import load\n"
        "from logfleet.cli.main import cli\n"
        "assert cli.get_command(None, 'broker') is not None\n"
        "load()\n"
        "print(sorted({'rich', 'structlog'} & set(sys.modules)), gc.isenabled())\n"
        "import rich\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "['structlog'] True\n"


def test_the_version_names_python_and_the_protocol() -> None:
    done = CliRunner().invoke(cli, ["--version"])
    python = ".".join(map(str, sys.version_info[:3]))
    assert done.output == f"logfleet {__version__} (Python {python}, protocol of Kafka 4.4)\n"


@pytest.mark.parametrize(
    "module, install", [("grpc.aio", "'logfleet[etcd]'"), ("aiohttp", "logfleet")]
)
def test_a_library_that_is_missing_is_a_line_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, module: str, install: str
) -> None:
    def load(_name: str) -> None:
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr("logfleet.cli.main.importlib.import_module", load)
    done = CliRunner().invoke(cli, ["topic"])
    assert done.exit_code == 1
    assert done.stderr == f"Error: this needs {module}: pip install {install}\n"


@pytest.mark.parametrize(
    "typed, near",
    [("topics", "topic"), ("topc", "topic"), ("conume", "consume"), ("event", "events")],
)
def test_an_unknown_command_is_answered_with_the_nearest(typed: str, near: str) -> None:
    result = CliRunner().invoke(cli, [typed], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: No such command '{typed}'")
    assert "Did you mean" in line
    assert f"'{near}'" in line
    assert line.endswith(("? See logfleet --help", ") See logfleet --help"))
