"""`make coverage`: each pure package is covered by its own unit tests, branches included, or this fails.

The packages are those of the import-linter contract in pyproject.toml; a package's own tests mirror it below
broker_image/tests/unit (the groups' scenarios belong to theirs). Tests of other packages do not count: a rule that only an
end-to-end test reaches is not tested where it stands.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = "broker_image/src/logfleet"
UNIT = "broker_image/tests/unit"
ALSO = {"groups": ["broker_image/tests/scenario"]}
PERCENT_MIN = 95.0


def pure_packages(pyproject: str) -> list[str]:
    """Names below `logfleet` of the packages that the contract calls pure."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    (pure,) = (each for each in contracts if each["name"].startswith("Pure packages"))
    return [name.removeprefix("logfleet.") for name in pure["source_modules"]]


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


def measure(package: str) -> float:
    """Run the package's own tests. Raises CalledProcessError if one fails."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        tests = [f"{UNIT}/{package}", *ALSO.get(package, [])]
        options = [f"--cov=logfleet.{package}", "--cov-branch", f"--cov-report=json:{report}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "auto", *options, *tests],
            check=True,
            cwd=ROOT,
            env={**os.environ, "COVERAGE_FILE": f"{scratch}/data"},
        )
        return percent(json.loads(report.read_text()), package)


def judge(measured: Iterable[tuple[str, float]]) -> int:
    """Print a line per package; 1 if one is below the minimum."""
    low = False
    for package, covered in measured:
        low |= covered < PERCENT_MIN
        print(f"{package:<12} {covered:6.1f} %{'' if covered >= PERCENT_MIN else '  too low'}")
    return int(low)


def main() -> int:
    packages = pure_packages((ROOT / "pyproject.toml").read_text())
    return judge([(package, measure(package)) for package in packages])


if __name__ == "__main__":
    sys.exit(main())
