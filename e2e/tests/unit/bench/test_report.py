import pytest

from e2e.bench.figures import NOT_RESULTS, compared, figure_of, short, spread, table
from e2e.bench.kafka.rows import IDLE, LOADS, THROUGHPUT
from e2e.bench.report import HEAD, as_json

WRITE = LOADS[0]


def values(cpu: float, per_s: float) -> dict[str, float]:
    return {
        "cpu_us_per_record": cpu,
        "records_per_s": per_s,
        "records_per_request": 500,
        "kernel_share": 0.5,
    }


ROUNDS = {
    "ours": [values(1.2, 100), values(0.8, 300), values(1, 200)],
    "kafka": [values(4, 100), values(2, 500), values(2, 400)],
}


def test_of_the_rounds_the_median_and_the_range_count():
    found = spread([3, 1, 2])
    assert (found.median, found.least, found.most, found.rounds) == (2, 1, 3, 3)
    assert str(found) == "2.00 (1.00-3.00)"
    assert str(spread([2])) == "2.00"


@pytest.mark.parametrize(
    "value,text",
    [(0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234567, "1,234,567")],
)
def test_figures_have_three_digits_or_all_before_the_point(value, text):
    assert short(value) == text


def test_the_ratio_is_that_of_the_medians_and_is_held_against_the_goal():
    cpu, per_s, full = compared(WRITE, ROUNDS)
    assert (cpu.ratio, cpu.goal, cpu.is_met) == (0.5, "ratio <= 1", True)
    assert (per_s.ratio, per_s.goal, per_s.is_met) == (0.5, "ratio >= 1", False)
    assert (full.ratio, full.goal, full.is_met) == (1, "", None)


def test_the_table_has_a_line_per_figure_and_names_a_row_once():
    lines = table(HEAD, [(WRITE, compared(WRITE, ROUNDS))], quick=False).splitlines()
    assert lines[0].split() == ["row", "figure", "Logfleet", "Kafka", "ratio", "goal"]
    assert lines[1].startswith("write 100 B, none, 12 partitions  CPU, us per record")
    assert lines[1].endswith("0.50   ratio <= 1  met")
    assert lines[2].startswith(" ")
    assert lines[2].endswith("ratio >= 1  missed")
    assert len(lines) == 4


def test_a_trial_says_that_it_is_one_and_judges_nothing():
    text = table(HEAD, [(WRITE, compared(WRITE, ROUNDS))], quick=True)
    assert text.splitlines()[0] == text.splitlines()[-1] == NOT_RESULTS
    assert "met" not in text.split()
    assert "missed" not in text


def test_our_own_limit_does_not_ask_for_kafka():
    found = compared(IDLE, {"ours": [{"mib": 60}], "kafka": [{"mib": 40}]})
    assert [(each.goal, each.is_met, each.ratio) for each in found] == [("ours <= 80", True, 1.5)]


def test_what_is_kept_holds_figures_goals_and_every_round():
    kept = as_json(WRITE, compared(WRITE, ROUNDS), ROUNDS)
    assert kept["cpu_us_per_record"] == {
        "ours": {"median": 1, "least": 0.8, "most": 1.2},
        "kafka": {"median": 2, "least": 2, "most": 4},
        "ratio": 0.5,
        "goal": "ratio <= 1",
        "met": True,
    }
    assert "goal" not in kept["records_per_request"]
    assert [each["records_per_s"] for each in kept["rounds"]["kafka"]] == [100, 500, 400]
    assert all("kernel_share" in each for each in kept["rounds"]["ours"])


def test_a_figure_without_a_goal_is_not_judged():
    full = LOADS[0].metrics[2]
    for metric, is_met in ((full, None), (THROUGHPUT, True)):
        rounds = {side: [{metric.key: value}] for side, value in (("ours", 3.0), ("kafka", 2.0))}
        assert figure_of(metric, rounds).is_met is is_met


def test_what_kafka_was_not_asked_for_is_neither_compared_nor_kept():
    rounds: dict[str, list[dict[str, float]]] = {"ours": [{"mib": 60}], "kafka": []}
    (found,) = compared(IDLE, rounds)
    assert found.is_met is True
    assert table(HEAD, [(IDLE, [found])], quick=False).splitlines()[1].split() == [
        *("idle", "resident", "memory,", "MiB", "60.0", "-", "ours", "<=", "80", "met")
    ]
    assert as_json(IDLE, [found], rounds)["mib"].keys() == {"ours", "goal", "met"}
