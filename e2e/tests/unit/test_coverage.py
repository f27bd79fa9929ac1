import pytest

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
    packages = coverage.pure_packages((coverage.ROOT / "pyproject.toml").read_text())
    assert {"wire", "log", "groups"} <= set(packages)
    for package in packages:
        assert (coverage.ROOT / coverage.SOURCES / package).is_dir()
        assert list((coverage.ROOT / coverage.UNIT / package).glob("test_*.py")), package


def test_branches_count_as_statements_do() -> None:
    half = report(f"/x/{coverage.SOURCES}/log/a.py", lines=(10, 10), branches=(0, 10))
    assert coverage.percent(half, "log") == 50
    with pytest.raises(AssertionError, match="nothing of wire"):
        coverage.percent(half, "wire")


def test_one_package_below_the_minimum_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.judge([("wire", 95.0), ("log", 99.0)]) == 0
    assert coverage.judge([("wire", 100.0), ("log", 94.9)]) == 1
    assert "log            94.9 %  too low" in capsys.readouterr().out
