import pytest

from e2e.bench.figures import compared
from e2e.bench.fleet.document import BEGIN, END, PAGE, as_markdown, filled, newest
from e2e.bench.fleet.rows import LAG, ROWS
from e2e.bench.report import as_json

ENTRY = {
    "cpus": 2,
    "cpu": "a processor",
    "memory_gib": 8,
    "kernel": "6.1",
    "python": "3.13",
    "loop": "uvloop",
    "kafka": "4.4.0",
    "java": "17",
    "load_average": [1, 2, 3],
    "load_average_after": [2.5, 2, 3],
}


def entry(ours: float, kafka: float):
    """A run in which every figure is the same."""
    rows = {}
    for row in ROWS:
        values = {
            side: {metric.key: value for metric in row.metrics}
            for side, value in (("ours", ours), ("kafka", kafka))
        }
        rounds = {side: [each] for side, each in values.items()}
        if row is LAG:
            rounds["kafka"] = []
        rows[row.name] = as_json(row, compared(row, rounds), rounds)
    return {**ENTRY, "rows": rows}


def test_a_run_becomes_a_line_per_figure_that_names_its_row_once():
    lines = as_markdown(entry(1, 2)).splitlines()
    assert lines[0].endswith("load average 1/2/3 before, 2.5/2/3 after the run.")
    assert lines[4] == (
        "| write 100 B, none, 12 partitions | CPU, us per record | 1.00 | 2.00 | 0.50 | ratio <= 0.8 |"
    )
    assert lines[5].startswith("|  | the same with etcd | 1.00 |")
    assert len(lines) == 4 + sum(len(row.metrics) for row in ROWS)


def test_what_missed_its_goal_says_so_and_what_kafka_was_not_asked_for_is_empty():
    lines = as_markdown(entry(6, 6)).splitlines()
    assert lines[4].endswith("| 1.00 | ratio <= 0.8, **missed** |")
    assert lines[-1].endswith("| 6.00 |  |  | ours <= 5, **missed** |")


def test_the_page_keeps_what_stands_around_the_table():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    found = filled(page, entry(1, 2))
    assert found.startswith(f"before\n{BEGIN}\n2 processors")
    assert found.endswith(f"|\n{END}\nafter\n")
    assert "old" not in found
    with pytest.raises(ValueError, match="lacks"):
        filled("a page without marks", entry(1, 2))


def test_the_page_shows_the_newest_run_that_is_kept():
    page = PAGE.read_text()
    assert page == filled(page, newest())
