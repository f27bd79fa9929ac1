import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from logfleet.cli import late_imports as module
from logfleet.cli.late_imports import Late, late_imports, loading

TOP = """
import asyncio_of_test
from logfleet.sessions_of_test import LIMIT, Session, fail
{more}

def use():
    return Session(LIMIT), asyncio_of_test.LIMIT

def refused():
    try:
        fail()
    except Session:
        return "refused"

def annotated(session: Session | None) -> None | Session: ...
"""
WORK = """
LIMIT = 7
def fail(): raise Session
class Session(Exception): pass
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch):
    """Loads a module of a command whose imports wait; with more lines at its top."""
    names = ("asyncio_of_test", "logfleet.sessions_of_test")
    for name in names:
        (tmp_path / f"{name.rpartition('.')[2]}.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("logfleet.__path__", [*sys.modules["logfleet"].__path__, str(tmp_path)])
    monkeypatch.setattr(module, "OTHERS", frozenset({"asyncio_of_test"}))
    monkeypatch.setattr(module, "_waiting", [])

    def made(more: str = "") -> ModuleType:
        loaded = ModuleType("logfleet.cli.command_of_test")
        with late_imports():
            exec(TOP.format(more=more), loaded.__dict__)
        return loaded

    yield made
    for name in names:
        sys.modules.pop(name, None)


def waits() -> bool:
    return "logfleet.sessions_of_test" not in sys.modules


def test_what_a_command_works_with_waits_until_it_runs(command) -> None:
    loaded = command()
    assert waits()
    session, limit = loading(loaded.use)()
    assert (session.args, limit) == ((7,), 7)
    assert loaded.Session is sys.modules["logfleet.sessions_of_test"].Session
    assert not any(isinstance(each, Late) for each in vars(loaded).values())


def test_the_first_use_loads_all_so_that_exceptions_are_classes(command) -> None:
    loaded = command()
    assert loaded.refused() == "refused"
    assert loaded.asyncio_of_test is sys.modules["asyncio_of_test"]


@pytest.mark.parametrize(
    "more, name, value",
    [
        ("twice = LIMIT * 2 if False else asyncio_of_test.LIMIT", "twice", 7),
        ("many = range(LIMIT)", "many", range(7)),
        ("some = bool(LIMIT)", "some", True),
        ("text = f'{LIMIT}'", "text", "7"),
        ("kind = isinstance(Exception(), Session)", "kind", False),
        ("class Own(Session): pass\nown = issubclass(Own, Exception)", "own", True),
    ],
)
def test_what_is_used_at_the_top_works_as_ever(command, more: str, name: str, value) -> None:
    assert getattr(command(more), name) == value


def test_a_missing_library_is_reported_when_the_command_runs(command, monkeypatch) -> None:
    loaded = command()
    monkeypatch.setitem(sys.modules, "asyncio_of_test", None)
    with pytest.raises(ModuleNotFoundError):
        loading(loaded.use)()


def test_other_modules_import_as_usual(command) -> None:
    with late_imports():
        exec("import asyncio_of_test", {"__name__": "logfleet.client.x"})
    assert "asyncio_of_test" in sys.modules


TOPIC_LIST_MODULES_MAX = 250
HEAVY = (
    "aiohttp", "asyncio", "grpc", "logfleet.client", "logfleet.node", "rich", "structlog", "uvloop", "yaml",
)  # fmt: skip

EVERY_COMMAND = """
import sys
import click
from logfleet.cli import late_imports
from logfleet.cli.main import COMMANDS, cli

load = late_imports.load
def fail():
    raise AssertionError("the options need what only the work needs")
late_imports.load = fail

def commands(path, command):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands([*path, name], inner)

every = [path for name in COMMANDS for path in commands([name], cli.get_command(None, name))]
"""
OPTIONS = """
for path in every:
    for mistake in ("--help", "--no-such-option"):
        try:
            cli.main([*path, mistake], prog_name="logfleet", standalone_mode=False)
        except click.ClickException:
            pass
print(len(every), *sys.modules)
"""
WORK_OF_ALL = """
load()
loaded = {key: each for key, each in sys.modules.items() if key.startswith("logfleet.cli.")}
for key, module in loaded.items():
    for name, value in vars(module).items():
        values = value if isinstance(value, tuple) else (value,)
        if any(isinstance(each, late_imports.Late) for each in values):
            print(key, name)
"""


def ran(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_options_of_all_commands_load_nothing_that_only_the_work_needs() -> None:
    *_, last = ran(EVERY_COMMAND + OPTIONS).splitlines()
    count, *loaded = last.split()
    assert int(count) > 60
    assert set(HEAVY).isdisjoint(loaded)


def test_no_module_keeps_what_waited_nor_a_tuple_of_it() -> None:
    """`except` takes a tuple of exceptions only if all of them are classes."""
    assert ran(EVERY_COMMAND + WORK_OF_ALL) == ""


def test_the_list_of_topics_loads_no_more_than_it_needs() -> None:
    """A count does not depend on how busy the machine is; if it grew, look with -X importtime."""
    program = (
        "import sys\n"
        "from logfleet.cli.main import cli\n"
        "try:\n"
        "    cli.main(['topic', 'list', '-b', '127.0.0.1:1', '--timeout', '0.1'])\n"
        "except SystemExit as ended:\n"
        "    assert ended.code == 1, ended.code\n"
        "print(*sys.modules)\n"
    )
    loaded = ran(program).split()
    assert {"aiohttp", "grpc", "logfleet.node", "rich", "structlog", "uvloop"}.isdisjoint(loaded)
    assert len(loaded) <= TOPIC_LIST_MODULES_MAX, sorted(loaded)
