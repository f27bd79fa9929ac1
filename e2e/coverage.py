"""A pytest plugin: each pure package is covered by its own unit tests, branches included, or the run fails.

`make unit` loads it, so the tests run once for both; `make coverage` runs the tests of the pure packages alone.

The packages are those of the import-linter contract in pyproject.toml; a package's own tests mirror it below
broker_image/tests/unit (the groups' scenarios belong to theirs). Tests of other packages do not count: a rule that only an
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
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

ROOT = Path(__file__).parents[1]
SOURCES = "broker_image/src/logfleet"
UNIT = "broker_image/tests/unit"
ALSO = {"groups": ["broker_image/tests/scenario"]}
PERCENT_MIN = 95.0
QUIET = ["already-imported", "no-data-collected", "module-not-measured", "module-not-imported"]
"""Warnings of coverage.py about what is so on purpose; pytest would make errors of them."""
IMPORTS = "imports"
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        importlib.import_module(module.name)
"""
FOLDER = "coverage_folder"
"""Where a worker of xdist finds the name of the folder for its data."""


def pure_packages(pyproject: str) -> list[str]:
    """Names below `logfleet` of the packages that the contract calls pure."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    (pure,) = (each for each in contracts if each["name"].startswith("Pure packages"))
    return [name.removeprefix("logfleet.") for name in pure["source_modules"]]


def tests_of(package: str) -> list[str]:
    """The folders of the package's own tests, relative to ROOT."""
    return [f"{UNIT}/{package}", *ALSO.get(package, [])]


def percent(report: dict[str, Any], package: str) -> float:
    """Statements and branches of the package that ran, of those there are."""
    ran = there = 0
    for file, content in report["files"].items():
        if f"{SOURCES}/{package}/" in file:
            summary = content["summary"]
            ran += summary["covered_lines"] + summary["covered_branches"]
            there += summary["num_statements"] + summary["num_branches"]
    assert there, f"nothing of {package} was measured"
    return 100 * ran / there


def judge(measured: Iterable[tuple[str, float]]) -> int:
    """Print a line per package; 1 if one is below the minimum."""
    low = False
    for package, covered in measured:
        low |= covered < PERCENT_MIN
        print(f"{package:<12} {covered:6.1f} %{'' if covered >= PERCENT_MIN else '  too low'}")
    return int(low)


def measurement(folder: Path, name: str, packages: Iterable[str]) -> Coverage:
    """Not started yet. Its data goes to a file of this process in the folder, whose name begins with `name`."""
    measured = Coverage(
        data_file=folder / name,
        data_suffix=True,
        branch=True,
        config_file=ROOT / "pyproject.toml",
        source_pkgs=[f"logfleet.{package}" for package in packages],
    )
    measured.set_option("run:disable_warnings", QUIET)
    return measured


def measure_imports(folder: Path, packages: Iterable[str]) -> None:
    """Add what importing every module of the packages runs."""
    packages = list(packages)
    script = folder / "import_all.py"
    script.write_text(IMPORT_ALL)
    names = [f"logfleet.{package}" for package in packages]
    command = [sys.executable, "-m", "coverage", "run", "--branch", f"--source={','.join(names)}"]
    subprocess.run(
        [*command, "--rcfile=", script, *names],
        check=True,
        cwd=ROOT,
        env={**os.environ, "COVERAGE_FILE": str(folder / IMPORTS)},
    )


def covered(folder: Path, package: str) -> float:
    """The percentage of what all processes measured for the package."""
    data = [str(each) for each in folder.glob(f"{package}.*")]
    total = measurement(folder, f"total-{package}", [package])
    total.combine([*data, str(folder / IMPORTS)], strict=True, keep=True)
    report = folder / f"{package}.json"
    total.json_report(outfile=str(report), include=[f"{ROOT / SOURCES / package}/*"])
    return percent(json.loads(report.read_text()), package)


class Measurements:
    """One per package, of which at most one runs: the one of the package whose test runs."""

    def __init__(self, folder: Path, packages: Iterable[str]) -> None:
        self._folder = folder
        self._packages = {
            ROOT / tests: package for package in packages for tests in tests_of(package)
        }
        self._all: dict[str, Coverage] = {}
        self._running: Coverage | None = None

    def of(self, path: Path) -> str | None:
        """The package to whose own tests a module of tests belongs."""
        return next((self._packages[each] for each in path.parents if each in self._packages), None)

    def switch(self, package: str | None) -> None:
        """Measure the package from now on, or nothing. Tests of one package follow one another, so this is rare."""
        wanted = None
        if package is not None:
            wanted = self._all.get(package)
            if wanted is None:
                wanted = self._all[package] = measurement(self._folder, package, [package])
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

    def __init__(self, packages: list[str]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="logfleet-coverage-")
        self._packages = packages
        self._percents: list[tuple[str, float]] = []
        self.folder = Path(self._scratch.name)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[FOLDER] = str(self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            measure_imports(self.folder, self._packages)
            self._percents = [(each, covered(self.folder, each)) for each in self._packages]
            if any(percents < PERCENT_MIN for _, percents in self._percents):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("pure packages by their own tests")
        judge(self._percents)

    def pytest_unconfigure(self) -> None:
        self._scratch.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    packages = pure_packages((ROOT / "pyproject.toml").read_text())
    folder = getattr(config, "workerinput", {}).get(FOLDER)
    if folder is None:
        report = Report(packages)
        config.pluginmanager.register(report)
        folder = report.folder
    if not config.pluginmanager.hasplugin("dsession"):  # else the workers run the tests
        config.pluginmanager.register(Measurements(Path(folder), packages))


def main() -> int:
    packages = pure_packages((ROOT / "pyproject.toml").read_text())
    tests = [folder for package in packages for folder in tests_of(package)]
    return pytest.main(["-q", "-n", "auto", "--dist", "loadgroup", "-p", "e2e.coverage", *tests])


if __name__ == "__main__":
    sys.exit(main())
