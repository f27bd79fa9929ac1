"""The project's shape, checked like any other rule (CONTRIBUTING.md says why each one)."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
BANNED_NAMES = {
    "utils.py",
    "util.py",
    "helpers.py",
    "helper.py",
    "common.py",
    "misc.py",
    "manager.py",
}

# A longer file or function needs a reason here: path or "path::function" -> why it is better whole.
EXCEPTIONS: dict[str, str] = {}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [path for name in sorted(set(listed)) if (path := ROOT / name).exists()]


PYTHON = tracked("*.py")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_there_is_something_to_check() -> None:
    assert len(PYTHON) > 5


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_modules_and_functions_stay_small(path: Path) -> None:
    name = name_of(path)
    lines = len(path.read_text().splitlines())
    too_long = []
    if lines > MODULE_LINES_MAX and name not in EXCEPTIONS:
        too_long.append(f"{name} has {lines} lines; split it by noun at {MODULE_LINES_MAX}")
    for function in functions(path):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX and f"{name}::{function.name}" not in EXCEPTIONS:
            too_long.append(
                f"{name}::{function.name} has {length} lines (max {FUNCTION_LINES_MAX})"
            )
    assert not too_long, "\n".join(too_long)


def test_no_drawer_for_everything() -> None:
    assert [name_of(path) for path in PYTHON if path.name in BANNED_NAMES] == []


def test_every_todo_names_its_issue() -> None:
    loose = []
    for path in PYTHON:
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"#.*\b(TODO|FIXME|XXX)\b", line) and not re.search(r"TODO\(#\d+\)", line):
                loose.append(f"{name_of(path)}:{number}")
    assert loose == []


def test_stdlib_names_are_not_shadowed_by_a_folder() -> None:
    # A package named `operator` could never be imported: the standard library's is there first.
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "e2e" / "__init__.py").exists()


def test_exceptions_are_still_needed() -> None:
    stale = []
    for key, reason in EXCEPTIONS.items():
        name, _, function = key.partition("::")
        path = ROOT / name
        assert reason, key
        if not path.exists():
            stale.append(key)
        elif function:
            lengths = [
                (f.end_lineno or 0) - f.lineno + 1 for f in functions(path) if f.name == function
            ]
            if not lengths or max(lengths) <= FUNCTION_LINES_MAX:
                stale.append(key)
        elif len(path.read_text().splitlines()) <= MODULE_LINES_MAX:
            stale.append(key)
    assert stale == []


def test_no_machine_or_index_leaks_into_the_tree() -> None:
    """Lock files name packages and hashes only; sources name no absolute home or work path."""
    leaks = []
    for path in tracked(
        "*.py", "*.lock", "*.toml", "*.sh", "*.yaml", "*.md", "Makefile", "Dockerfile"
    ):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (
                re.search(r"--(extra-)?index-url|file://|/work/|/root/", line)
                and "$PWD" not in line
            ):
                leaks.append(f"{name_of(path)}:{number}: {line.strip()[:80]}")
    assert leaks == []
