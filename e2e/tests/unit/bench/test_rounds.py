from collections import Counter

from e2e.bench import rounds
from e2e.bench.kafka.rows import LOADS
from e2e.bench.rounds import rotated, run_loads


def test_sides_take_turns_in_being_first():
    assert [rotated(["ours", "kafka"], turn) for turn in range(3)] == [
        ["ours", "kafka"],
        ["kafka", "ours"],
        ["ours", "kafka"],
    ]


def test_each_row_runs_on_both_sides_in_every_round_and_warm_ups_do_not_count(monkeypatch):
    runs: list[tuple[str, str]] = []

    def measure(load, node, client, topic):
        runs.append((load.name, node))
        return {"number": float(len(runs))}

    monkeypatch.setattr(rounds, "measure", measure)
    nodes = {"ours": "ours", "kafka": "kafka"}
    found = run_loads(LOADS[:2], nodes, None, rounds=2, warmups=1)  # type: ignore[arg-type]
    assert Counter(runs) == {(load.name, side): 3 for load in LOADS[:2] for side in nodes}
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
