"""The table of docs/internals/performance.md is that of the figures."""

import pytest

from e2e.bench.spark.__main__ import aim
from e2e.bench.spark.page import BEGIN, END, PAGE, write_table
from e2e.bench.spark.work import FEW_RECORDS, rows

ENTRY = {
    "commit": "abc",
    "load_average": [0.2, 0.0, 0.0],
    "load_average_after": [1.5, 1.0, 1.0],
    "rounds": 3,
    "rows": {
        "few": {
            "title": "availableNow of 80 records",
            "spark_cpu_s": {"ours": 1.12, "theirs": 0.88, "ratio": 1.273},
            "own": {"ratio": 0.284},
            "broker_cpu_s": {"ours": 0.01, "theirs": 0.02, "ratio": 0.5},
        },
        "write": {
            "title": "write, none, 100 B",
            "rows_per_s": {"ours": 493123.0, "theirs": 533000.0, "ratio": 0.925},
            "spark_cpu_s": {"ours": 4.0, "theirs": 3.2, "ratio": 1.25},
            "broker_cpu_s": {"ours": 0.1, "theirs": 0.5, "ratio": 0.2},
        },
    },
}


def test_figures_are_written_between_the_marks_and_again_in_their_place():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = write_table(page, ENTRY)
    assert "| availableNow of 80 records, CPU s | 1.12 | 0.88 | 1.27 | 1.27 | 0.28 | 0.50 |" in once
    assert "| write, none, 100 B, rows/s | 493,123 | 533,000 | 0.93 | 1.25 |  | 0.20 |" in once
    assert (
        "Medians of 3 rounds after one that does not count; broker of commit abc, load 0.2 to 1.5."
        in once
    )
    assert "old" not in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert write_table(once, ENTRY) == once


def test_a_page_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="marks"):
        write_table("nothing", ENTRY)


def test_the_page_has_the_marks():
    assert write_table(PAGE.read_text(), ENTRY).count("| write, none, 100 B, rows/s |") == 1


def test_the_rows_of_the_bench_have_names_of_their_own_and_the_aims_of_the_issue():
    found = rows()
    assert len({row.name for row in found}) == len(found)
    aims = {row.name: [aim(metric) for metric in row.metrics if metric.goal] for row in found}
    assert aims["batch_read-none-100"] == [">= 1.5", "<= 1.1"]
    assert aims["batch_read-none-1024-value"] == [">= 1.5", "<= 1.6"]
    assert aims["available_now-none-1024"] == [">= 1", "<= 1.3"]
    assert aims["write-none-1024"] == [">= 0.8", "<= 2"]
    few = next(row for row in found if row.records == FEW_RECORDS)
    goal = few.metrics[0].goal
    assert goal is not None
    assert [goal.is_met(ours, 9.0) for ours in (1.4, 1.6)] == [True, False]
    assert aim(few.metrics[0]) == "<= 1.5 CPU s of Spark"
