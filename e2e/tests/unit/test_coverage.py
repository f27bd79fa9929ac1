import inspect
from collections.abc import Callable

import pytest
from coverage import CoverageData
from logfleet.log import names

from e2e import coverage


def report(file: str, *, lines: tuple[int, int], branches: tuple[int, int]):
    return {
        "files": {
            file: {
                "summary": {
                    "covered_lines": lines[0],
                    "num_statements": lines[1],
                    "covered_branches": branches[0],
                    "num_branches": branches[1],
                }
            }
        }
    }


def test_every_pure_package_has_tests_of_its_own() -> None:
    rooms = coverage.pure_rooms((coverage.ROOT / "pyproject.toml").read_text())
    assert {"wire", "log", "groups"} <= set(rooms)
    for room, members in rooms.items():
        assert all((coverage.ROOT / coverage.file_of(name)).exists() for name in members), room
        assert coverage.tests_of(members), room


def test_branches_count_as_statements_do() -> None:
    half = report(f"/x/{coverage.SOURCES}/wire/a.py", lines=(10, 10), branches=(0, 10))
    assert coverage.percent(half, ["wire"]) == 50
    with pytest.raises(AssertionError, match="nothing of records"):
        coverage.percent(half, ["records"])


def test_one_package_below_the_minimum_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.judge([("wire", 95.0), ("log", 99.0)]) == 0
    assert coverage.judge([("wire", 100.0), ("log", 94.9)]) == 1
    assert "log                  94.9 %  too low" in capsys.readouterr().out


def test_a_rooms_own_tests_are_those_that_mirror_it_and_the_scenarios_of_groups(
    tmp_path,
) -> None:
    measured = coverage.Measurements(
        tmp_path, {"groups": ["groups"], "log": ["log.names"], "wire": ["wire"]}
    )
    tests = coverage.ROOT / "broker_image" / "tests"
    assert measured.of(tests / "unit" / "log" / "test_names.py") == "log"
    assert measured.of(tests / "unit" / "log" / "test_validation.py") is None
    assert measured.of(tests / "unit" / "wire" / "test_codec.py") == "wire"
    assert measured.of(tests / "scenario" / "test_groups.py") == "groups"
    assert measured.of(tests / "unit" / "node" / "test_names.py") is None


def test_what_runs_for_another_package_does_not_count(tmp_path) -> None:
    """A rule of log that only tests of wire reach is not tested where it stands."""
    measured = coverage.Measurements(tmp_path, {"log": ["log.names"], "wire": ["wire"]})
    measured.switch("log")
    names.parse_offset_file("")
    measured.switch("wire")
    names.parse_partition_directory("")
    measured.switch(None)
    names.leaving_suffix("")
    measured.save()
    (file,) = tmp_path.glob("log.*")
    data = CoverageData(str(file))
    data.read()
    ran = set(data.lines(names.__file__) or ())

    def has_run(function: Callable[..., object]) -> bool:
        lines, first = inspect.getsourcelines(function)
        return bool(ran & set(range(first, first + len(lines))))

    assert has_run(names.parse_offset_file)
    assert not has_run(names.parse_partition_directory)
    assert not has_run(names.leaving_suffix)
