"""A pytest plugin: each pure package is covered by its own unit tests, branches included, or the run fails.

`make unit COVERED=1` loads it, so the tests run once for both; `make coverage` runs the tests of the pure packages alone.

The packages are those of the import-linter contract in pyproject.toml; of a room that has other modules as well, the contract
lists the pure modules, and the tests of each are the file that mirrors it. For all others a package's own tests mirror it below
broker_image/tests/unit (the scenarios of groups and transactions belong to theirs). Tests of other packages do not count: a rule that only an
end-to-end test reaches is not tested where it stands. So each package has a measurement of its own, which runs while a
module of its tests is imported and while one of its tests runs; all other tests run untraced. The lines that an import
runs are added by a process that does nothing but import.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

ROOT = Path(__file__).parents[1]
SOURCES = "broker_image/src/logfleet"
UNIT = "broker_image/tests/unit"
ALSO = {
    "groups": ["broker_image/tests/scenario"],
    "transactions": ["broker_image/tests/scenario"],
}
PERCENT_MIN = 95.0
QUIET = ["already-imported", "no-data-collected", "module-not-measured", "module-not-imported"]
"""Warnings of coverage.py about what is so on purpose; pytest would make errors of them."""
IMPORTS = "imports"
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
        importlib.import_module(module.name)
"""
FOLDER = "coverage_folder"
"""Where a worker of xdist finds the name of the folder for its data."""


def pure_rooms(pyproject: str) -> dict[str, list[str]]:
    """What the contract lists as pure, below `logfleet`: packages by themselves, modules by the room that they are in."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    (pure,) = (each for each in contracts if each["name"].startswith("Pure packages"))
    rooms: dict[str, list[str]] = {}
    for name in (each.removeprefix("logfleet.") for each in pure["source_modules"]):
        is_package = (ROOT / SOURCES / in_path(name)).is_dir()
        rooms.setdefault(name if is_package else name.partition(".")[0], []).append(name)
    return rooms


def in_path(name: str) -> str:
    return name.replace(".", "/")


def file_of(name: str) -> str:
    """The end of the name of a module's file, or part of those of a package's files."""
    path = f"{SOURCES}/{in_path(name)}"
    return f"{path}/" if (ROOT / path).is_dir() else f"{path}.py"


def tests_of(names: Iterable[str]) -> list[str]:
    """The folders of the packages' own tests and the files of the modules', relative to ROOT."""
    tests = []
    for name in names:
        folder = f"{UNIT}/{in_path(name)}"
        room, _, module = folder.rpartition("/")
        found = [folder, f"{room}/test_{module}.py", *ALSO.get(name, [])]
        tests += [each for each in found if (ROOT / each).exists()]
    return tests


def percent(report: dict[str, Any], names: Sequence[str]) -> float:
    """Statements and branches of these packages and modules that ran, of those there are."""
    ran = there = 0
    for file, content in report["files"].items():
        if any(file_of(name) in file for name in names):
            summary = content["summary"]
            ran += summary["covered_lines"] + summary["covered_branches"]
            there += summary["num_statements"] + summary["num_branches"]
    assert there, f"nothing of {', '.join(names)} was measured"
    return 100 * ran / there


def judge(measured: Iterable[tuple[str, float]]) -> int:
    """Print a line per package; 1 if one is below the minimum."""
    low = False
    for package, covered in measured:
        low |= covered < PERCENT_MIN
        print(f"{package:<18} {covered:6.1f} %{'' if covered >= PERCENT_MIN else '  too low'}")
    return int(low)


def measurement(folder: Path, name: str, measured: Iterable[str]) -> Coverage:
    """Not started yet. Its data goes to a file of this process in the folder, whose name begins with `name`."""
    coverage = Coverage(
        data_file=folder / name,
        data_suffix=True,
        branch=True,
        config_file=ROOT / "pyproject.toml",
        source_pkgs=[f"logfleet.{each}" for each in measured],
    )
    coverage.set_option("run:disable_warnings", QUIET)
    return coverage


def measure_imports(folder: Path, rooms: Mapping[str, Sequence[str]]) -> None:
    """Add what importing every module of the rooms runs."""
    script = folder / "import_all.py"
    script.write_text(IMPORT_ALL)
    names = [f"logfleet.{name}" for members in rooms.values() for name in members]
    command = [sys.executable, "-m", "coverage", "run", "--branch", f"--source={','.join(names)}"]
    subprocess.run(
        [*command, "--rcfile=", script, *names],
        check=True,
        cwd=ROOT,
        env={**os.environ, "COVERAGE_FILE": str(folder / IMPORTS)},
    )


def covered(folder: Path, room: str, names: Sequence[str]) -> float:
    """The percentage of what all processes measured for the room."""
    data = [str(each) for each in folder.glob(f"{room}.*")]
    total = measurement(folder, f"total-{room}", names)
    total.combine([*data, str(folder / IMPORTS)], strict=True, keep=True)
    report = folder / f"{room}.json"
    files = [
        f"{ROOT / file_of(name)}{'' if file_of(name).endswith('.py') else '/**'}" for name in names
    ]
    total.json_report(outfile=str(report), include=files)
    return percent(json.loads(report.read_text()), names)


class Measurements:
    """One per room, of which at most one runs: the one of the room whose test runs."""

    def __init__(self, folder: Path, rooms: Mapping[str, Sequence[str]]) -> None:
        self._folder = folder
        self._rooms = rooms
        self._tests = {
            ROOT / tests: room for room, names in rooms.items() for tests in tests_of(names)
        }
        self._all: dict[str, Coverage] = {}
        self._running: Coverage | None = None

    def of(self, path: Path) -> str | None:
        """The room to whose own tests a module of tests belongs."""
        return next(
            (self._tests[each] for each in (path, *path.parents) if each in self._tests), None
        )

    def switch(self, room: str | None) -> None:
        """Measure the room from now on, or nothing. Tests of one room follow one another, so this is rare."""
        wanted = None
        if room is not None:
            wanted = self._all.get(room)
            if wanted is None:
                wanted = self._all[room] = measurement(self._folder, room, self._rooms[room])
        if wanted is self._running:
            return
        if self._running is not None:
            self._running.stop()
        self._running = wanted
        if wanted is not None:
            wanted.start()

    def save(self) -> None:
        self.switch(None)
        for each in self._all.values():
            each.save()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """A module of tests is imported, and what its parametrization calls is called."""
        if isinstance(collector, pytest.Module):
            self.switch(self.of(collector.path))
        try:
            return (yield)
        finally:
            self.switch(None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self.switch(self.of(item.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.save()


class Report:
    """Judges at the end of the run, in the process that was started by hand."""

    def __init__(self, rooms: Mapping[str, Sequence[str]]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="logfleet-coverage-")
        self._rooms = rooms
        self._percents: list[tuple[str, float]] = []
        self.folder = Path(self._scratch.name)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[FOLDER] = str(self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            measure_imports(self.folder, self._rooms)
            self._percents = [
                (room, covered(self.folder, room, names)) for room, names in self._rooms.items()
            ]
            if any(percents < PERCENT_MIN for _, percents in self._percents):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("pure packages by their own tests")
        judge(self._percents)

    def pytest_unconfigure(self) -> None:
        self._scratch.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    rooms = pure_rooms((ROOT / "pyproject.toml").read_text())
    folder = getattr(config, "workerinput", {}).get(FOLDER)
    if folder is None:
        report = Report(rooms)
        config.pluginmanager.register(report)
        folder = report.folder
    if not config.pluginmanager.hasplugin("dsession"):  # else the workers run the tests
        config.pluginmanager.register(Measurements(Path(folder), rooms))


def main() -> int:
    rooms = pure_rooms((ROOT / "pyproject.toml").read_text())
    tests = [each for names in rooms.values() for each in tests_of(names)]
    return pytest.main(["-q", "-n", "auto", "--dist", "loadgroup", "-p", "e2e.coverage", *tests])


if __name__ == "__main__":
    sys.exit(main())
