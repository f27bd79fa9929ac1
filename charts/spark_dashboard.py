#!/usr/bin/env python3
"""Writes files/dashboard.json of the Spark job's chart: `python -m charts.spark_dashboard`.

A test fails if the committed file is out of date. The metrics are those of
logfleet_spark.jobs.metrics.
"""

import json
from pathlib import Path
from typing import Final

from charts.dashboard import Panel, page

PAGE: Final = Path(__file__).parent / "spark-job" / "files" / "dashboard.json"
JOB: Final = 'namespace="$namespace", spark_job="$job"'


def _rate(metric: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by (spark_job) (rate({metric}{{JOB}}[$__rate_interval]))", "{{spark_job}}"),)


ROWS: Final = {
    "Progress": (
        Panel(
            "Lag, by topic",
            "short",
            (("sum by (topic) (logfleet_spark_lag{JOB})", "{{topic}}"),),
        ),
        Panel(
            "Worst partitions",
            "short",
            (
                (
                    "topk(5, max by (topic, partition) (logfleet_spark_lag{JOB}))",
                    "{{topic, partition}}",
                ),
            ),
        ),
        Panel(
            "Time of batches, and their trigger",
            "ms",
            (
                ("max by (spark_job) (logfleet_spark_batch_ms{JOB})", "last batch"),
                ("max by (spark_job) (logfleet_spark_trigger_ms{JOB})", "trigger"),
            ),
        ),
    ),
    "Reading": (
        Panel("Records", "cps", _rate("logfleet_spark_rows_total")),
        Panel("Dead letters", "cps", _rate("logfleet_spark_dead_letters_total")),
        Panel("Late rows", "cps", _rate("logfleet_spark_late_rows_total")),
        Panel("Micro-batches", "cps", _rate("logfleet_spark_batches_total")),
        Panel("Dead letters sent back", "cps", _rate("logfleet_spark_replayed_total")),
        Panel(
            "Time without progress",
            "s",
            (
                (
                    "time() - max by (spark_job) (logfleet_spark_last_progress_seconds{JOB} > 0)",
                    "{{spark_job}}",
                ),
            ),
        ),
    ),
}


def text() -> str:
    """Return the content of the file."""
    labels = {
        "namespace": "label_values(logfleet_spark_batch_ms, namespace)",
        "job": 'label_values(logfleet_spark_batch_ms{namespace="$namespace"}, spark_job)',
    }
    made = page("Logfleet: Spark jobs", "logfleet-spark", ROWS, ("JOB", JOB), labels)
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
