"""What is kept of a row, in the format of e2e/results/bench-spark.json."""

from e2e.bench.spark.__main__ import as_json, figures
from e2e.bench.spark.work import FLOOR, rows


def values(speed: float, cpu_s: float) -> dict[str, float]:
    return {"rows_per_s": speed, "spark_cpu_s": cpu_s, "broker_cpu_s": 0.5, "rss_mib": 1674.1}


ROW, PACKED = (next(row for row in rows() if row.name == f"write-{c}-100") for c in ("none", "lz4"))
ROUNDS = {"logfleet": [values(657302.9, 4.0)], "kafka": [values(333929.6, 3.2)]}


def test_medians_ratios_aims_and_what_is_ours_beyond_the_floor_are_kept():
    measured = {ROW.name: ROUNDS | {FLOOR: [values(1e6, 3.2)]}}
    kept = as_json(ROW, figures(ROW, measured), measured[ROW.name])
    assert kept == {
        "title": "write, none, 100 B",
        "records": 2_000_000,
        "rows_per_s": {
            "ours": 657303.0,
            "theirs": 333930.0,
            "floor": 1000000.0,
            "ratio": 1.968,
            "aim": ">= 1",
            "met": True,
        },
        "spark_cpu_s": {
            "ours": 4.0,
            "theirs": 3.2,
            "floor": 3.2,
            "ratio": 1.25,
            "aim": "<= 1.1",
            "met": False,
        },
        "own": {"ratio": 0.25, "aim": "<= 0.3", "met": True},
        "broker_cpu_s": {"ours": 0.5, "theirs": 0.5, "floor": 0.5, "ratio": 1.0},
        "rss_mib": {"ours": 1674.0, "theirs": 1674.0, "floor": 1674.0, "ratio": 1.0},
        "rounds": measured[ROW.name],
    }


def test_a_row_with_a_codec_has_the_floor_of_the_row_without():
    measured = {
        ROW.name: ROUNDS | {FLOOR: [values(1e6, 3.2)]},
        PACKED.name: ROUNDS | {FLOOR: []},
    }
    own = [each for each in figures(PACKED, measured) if each.metric.key == "own"]
    assert [round(each.ratio, 3) for each in own] == [0.25]
