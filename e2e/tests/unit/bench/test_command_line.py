import subprocess
import sys
from pathlib import Path

import pytest

from e2e.bench.command_line import Cost, cost_of, figures, sorted_lines, write_lines


def test_the_lines_are_the_same_each_time_and_have_35_bytes_on_average(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_lines(tmp_path / name, 2000)
    assert sorted_lines(tmp_path / "a") == sorted_lines(tmp_path / "b")
    assert 34 < (tmp_path / "a").stat().st_size / 2000 < 36


def test_the_cost_of_a_program_is_what_it_used(tmp_path: Path) -> None:
    given, written = tmp_path / "given", tmp_path / "written"
    given.write_text("line\n")
    program = "import sys; sum(range(2_000_000)); sys.stdout.write(sys.stdin.read())"
    cost = cost_of([sys.executable, "-c", program], given, written)
    assert written.read_text() == "line\n"
    assert cost.cpu_s > 0
    assert cost.wall_s > 0


def test_a_program_that_fails_has_no_cost() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        cost_of([sys.executable, "-c", "raise SystemExit(3)"])


def test_figures_are_medians_and_their_ratio() -> None:
    costs = {
        "logfleet": [Cost(0.6, 1), Cost(0.9, 2), Cost(0.5, 3)],
        "kcat": [Cost(0.2, 1), Cost(0.3, 1), Cost(0.3, 9)],
    }
    assert figures(costs) == {
        "logfleet_cpu_s": 0.6,
        "kcat_cpu_s": 0.3,
        "logfleet_wall_s": 2,
        "kcat_wall_s": 1,
        "ratio": 2.0,
    }
