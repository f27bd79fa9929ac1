import pytest

from e2e.bench.requests.load import Measured
from e2e.bench.requests.report import Row, as_json, memory, per_record_us, per_request_us, table
from e2e.bench.requests.spec import Case, Kind


def measured(cpu_s: float) -> Measured:
    return Measured(
        requests=100, records=1000, cpu_s=cpu_s, cpu_user_s=0.3, cpu_system_s=0.1, wall_s=2.0
    )


@pytest.fixture
def row() -> Row:
    case = Case("produce something", Kind.PRODUCE, 100, 10, requests=100, depth=1, aim=1.8)
    ours = [measured(0.04), measured(0.03), measured(0.2)]
    return Row(case, ours, [measured(0.02), measured(0.01), measured(0.05)])


def test_figures_are_the_least_and_the_median_of_the_rounds(row):
    for found, figures in (
        (per_request_us(row.broker), (300, 400)),
        (per_record_us(row.broker), (30, 40)),
    ):
        assert (found.least, found.median) == pytest.approx(figures)


def test_the_ratio_is_that_of_the_medians_and_each_round_has_its_own(row):
    assert row.ratio == pytest.approx(2)
    assert row.ratios == pytest.approx([2, 3, 4])


def test_without_a_bare_server_there_is_no_ratio(row):
    alone = Row(row.case, row.broker, [])
    assert alone.ratio is None
    assert "bare" not in as_json(alone)
    assert "produce something" in table([alone])


def test_the_table_has_a_line_per_case_with_both_figures_and_the_aim(row):
    line = table([row]).splitlines()[-1]
    assert line.split() == [
        *("produce", "something"),
        *("30", "(40)", "300", "(400)"),
        *("10", "(20)", "100", "(200)"),
        *("2.00", "(1.8)", "25%", "25%"),
    ]


def test_what_is_kept_holds_least_and_median(row):
    kept = as_json(row)
    assert kept["broker"]["us_per_request"] == {"least": 300.0, "median": 400.0}
    assert kept["bare"]["us_per_record"] == {"least": 10.0, "median": 20.0}
    assert kept["broker"]["requests_per_s"] == 50
    assert (kept["ratio"], kept["aim"]) == (2.0, 1.8)


def test_memory_is_told_beside_its_aim():
    assert memory(50 * 1024, 60 * 1024).endswith(
        "50.0 MiB idle (aim 80), 60.0 MiB after the rounds"
    )
