from collections import Counter

from e2e.bench.kafka.rows import LOADS
from e2e.bench.rounds import rotated, run_rounds


def test_sides_take_turns_in_being_first():
    assert [rotated(["ours", "kafka"], turn) for turn in range(3)] == [
        ["ours", "kafka"],
        ["kafka", "ours"],
        ["ours", "kafka"],
    ]


def test_each_row_runs_on_both_sides_in_every_round_and_warm_ups_do_not_count():
    runs: list[tuple[str, str]] = []

    def measure(load, side, number):
        runs.append((load.name, side))
        return {"number": float(len(runs))}

    sides = ["ours", "kafka"]
    found = run_rounds(LOADS[:2], sides, measure, rounds=2, warmups=1)
    assert Counter(runs) == {(load.name, side): 3 for load in LOADS[:2] for side in sides}
    assert [side for name, side in runs if name == LOADS[0].name] == [
        *("ours", "kafka"),
        *("kafka", "ours"),
        *("ours", "kafka"),
    ]
    assert [side for _, side in runs[:4]] == ["ours", "kafka", "kafka", "ours"]
    assert found[LOADS[0].name] == {
        "ours": [{"number": 6}, {"number": 9}],
        "kafka": [{"number": 5}, {"number": 10}],
    }


def test_a_row_has_the_sides_that_take_part_in_it_and_no_round_begins_after_the_time_is_up():
    found = run_rounds(
        LOADS[:1],
        ["ours", "floor"],
        lambda _row, _side, number: {"number": float(number)},
        rounds=3,
        warmups=1,
        taking=lambda _: ["ours"],
        until_s=0,
    )
    assert found == {LOADS[0].name: {"ours": [{"number": 1}], "floor": []}}
