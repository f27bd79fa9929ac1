from dataclasses import replace

import pytest

from e2e.bench.figures import Bound, Goal, chosen
from e2e.bench.kafka.rows import LIVES, LOADS, ROWS, Kind


def test_a_goal_compares_the_ratio_or_our_own_figure():
    at_most, at_least = Goal(Bound.RATIO_MAX, 0.7), Goal(Bound.RATIO_MIN, 1)
    assert at_most.is_met(7, 0.7)
    assert not at_most.is_met(8, 0.8)
    assert at_least.is_met(10, 1)
    assert not at_least.is_met(9, 0.9)
    assert Goal(Bound.OURS_MAX, 80).is_met(80, 80)
    assert not Goal(Bound.OURS_MAX, 80).is_met(81, 0.081)


def test_without_words_all_rows_are_chosen():
    assert chosen("", ROWS) == list(ROWS) == [*LOADS, *LIVES]


def test_words_choose_rows_by_parts_of_their_names_in_the_order_of_the_table():
    assert [row.name for row in chosen("single, write-1KiB", ROWS)] == [
        "write-1KiB-none",
        "write-1KiB-lz4",
        "single-1000",
        "single-5000",
    ]


def test_a_word_that_no_row_has_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"'zstd'; there are write-100B-none"):
        chosen("single zstd", ROWS)


def test_each_row_is_named_once_and_has_titles_of_its_own():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len({row.title for row in ROWS}) == len(ROWS)


def test_rows_of_full_batches_and_of_single_records_have_the_goals_of_the_issue():
    for load in LOADS:
        goals = {metric.key: metric.goal for metric in load.metrics if metric.goal}
        if load.kind is Kind.PACE:
            assert goals["cpu_us_per_request"] == Goal(Bound.RATIO_MAX, 0.7)
            assert goals["p99_us"] == Goal(Bound.RATIO_MAX, 1.0)
        elif load.kind is Kind.TRANSACT:
            assert goals["cpu_us_per_record"] == Goal(Bound.RATIO_MAX, 0.8)
            assert goals["p99_us"] == Goal(Bound.RATIO_MAX, 1.0)
        elif load.kind is not Kind.FLUSH:
            assert goals["records_per_s"] == Goal(Bound.RATIO_MIN, 1.0)
            assert ("cpu_us_per_record" in goals) == (load.partitions == 12)


def test_the_client_is_told_how_much_or_how_fast():
    write, pace = LOADS[0], next(load for load in LOADS if load.kind is Kind.PACE)
    assert write.arguments() == {
        "partitions": 12,
        "record_bytes": 100,
        "codec": "none",
        "records": write.records,
    }
    assert "records" not in pace.arguments()
    assert pace.arguments()["rate"] == pace.rate


def test_the_client_is_told_how_many_records_a_transaction_has():
    (row,) = (row for row in LOADS if row.name == "transactions-1000")
    assert row.arguments()["transaction_records"] == 1000
    assert row.title == "1,000 records of 100 B a transaction"
    plain = replace(row, kind=Kind.FLUSH, transaction_records=1)
    assert plain.title == "1 record of 100 B a flush, no transactions"


def test_a_trial_is_smaller_in_all_that_takes_time():
    row = replace(LOADS[-1], records=5000)
    small = row.smaller
    assert (small.records, small.seconds, small.connections) == (100, 1, 50)
    assert "50 connections" in small.title


def test_a_goal_may_bound_our_own_figure_besides_the_ratio():
    goal = Goal(Bound.RATIO_MAX, 1, ours_max=10_000)
    assert goal.is_met(9_000, 1)
    assert not goal.is_met(9_000, 9 / 8)
    assert not goal.is_met(11_000, 0.55)
    assert str(goal) == "ratio <= 1, ours <= 10,000"


def test_producers_with_a_rate_may_make_batches():
    paced = next(load for load in LOADS if load.kind is Kind.PACE)
    batched = replace(paced, batch_records=500, linger_ms=1)
    assert (paced.arguments()["batch_records"], paced.arguments()["linger_ms"]) == (1, 0)
    assert (batched.arguments()["batch_records"], batched.arguments()["linger_ms"]) == (500, 1)
    assert batched.title == "1 KiB records, 1,000/s"
