from e2e.bench.figures import Bound, Goal, chosen
from e2e.bench.fleet.rows import LAG, LEADERS, LOADS, PARTITIONED, ROWS
from e2e.bench.kafka.rows import Kind


def goals(row) -> dict[str, Goal]:
    return {metric.key: metric.goal for metric in row.metrics if metric.goal is not None}


def test_every_load_has_three_replicas():
    assert {load.replicas for load in LOADS} == {3}


def test_the_processor_time_of_brokers_alone_and_with_etcd_has_the_same_goal():
    limits = {"write-100B": 0.8, "write-1KiB": 0.8, "one-record-500": 0.6}
    unit = {Kind.WRITE: "record", Kind.PACE: "request"}
    for load in LOADS[:3]:
        goal = Goal(Bound.RATIO_MAX, limits[load.name])
        keys = [f"{whole}cpu_us_per_{unit[load.kind]}" for whole in ("", "whole_")]
        assert [goals(load)[key] for key in keys] == [goal, goal]


def test_at_a_rate_p99_is_held_against_kafka_and_against_10_ms():
    assert [load.rate for load in LOADS[3:]] == [2_000, 20_000]
    for load in LOADS[3:]:
        goal = goals(load)["p99_us"]
        assert goal.is_met(9_999, 1)
        assert not goal.is_met(10_001, 0.5)
        assert not goal.is_met(2_000, 2_000 / 1_999)


def test_one_record_per_request_goes_alone_and_others_in_batches():
    assert [load.batch_records for load in LOADS[2:]] == [1, 10_000, 10_000]


def test_leaders_move_within_two_seconds_and_no_step_of_the_loop_takes_more_than_five_ms():
    assert goals(LEADERS) == {key: Goal(Bound.OURS_MAX, 2) for key in ("leave_s", "elect_s")}
    assert set(goals(LAG).values()) == {Goal(Bound.OURS_MAX, 5)}
    assert goals(PARTITIONED) == {}


def test_rows_are_chosen_by_words_as_those_of_one_broker_are():
    assert [row.name for row in chosen("latency lag", ROWS)] == [
        "latency-2000",
        "latency-20000",
        "lag",
    ]
