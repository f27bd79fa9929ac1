"""The Spark job of the quickstart, run as a user would run it, and its results."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from e2e.harness import flights
from e2e.harness.processes import Rig
from e2e.harness.program import ProgramFailed
from e2e.harness.spark_topics import read_table

JOB = Path(__file__).resolve().parents[2] / "spark-on-k8s" / "jobs" / "window_counts.py"
JOB_S_MAX = 1800.0
"""Far longer than the job takes on a slow machine, so only a job that hangs is ended."""


@dataclass(frozen=True)
class Mode:
    """flights: number of flights to send, None for all. arguments: of the job."""

    name: str
    flights: int | None
    watermark: str
    arguments: tuple[str, ...]


ALL = Mode("all", None, "24 hours", ("--output-mode", "update", "--sink", "delta"))
# Rows are late only if micro-batches are this small; so few flights still make the job end within a minute.
LATE = Mode(
    "late",
    10_000,
    "1 hour",
    ("--output-mode", "append", "--sink", "parquet", "--max-offsets-per-trigger", "400"),
)


def run_job(rig: Rig, bootstrap: str, topic: str, mode: Mode) -> Path:
    """Run the job to its end; returns the folder that it wrote. Raises ProgramFailed."""
    work = rig.directory
    out = work / "counts"
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[2]"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.sql.warehouse.dir={work / 'warehouse'}"),
        *("--conf", f"spark.local.dir={work / 'local'}"),
        str(JOB),
        *("--bootstrap-servers", bootstrap, "--topic", topic, "--source", "logfleet"),
        *("--fields", flights.FIELDS, "--event-time", "event_time", "--group-by", "origin"),
        *("--window", flights.WINDOW, "--watermark", mode.watermark, "--shuffle-partitions", "2"),
        *("--output", str(out), "--checkpoint", str(checkpoint(work))),
        *mode.arguments,
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # use the Spark of the lock file, not another one on this machine
    environment.pop("SPARK_HOME", None)
    program = rig.program("spark", command, environment)
    program.launch()
    code = program.wait(JOB_S_MAX)
    if code != 0:
        raise ProgramFailed(
            f"the Spark job ended with {code}; the end of its log:\n{program.tail()}"
        )
    program.close()  # also ends Spark's Python workers
    return out


def checkpoint(work: Path) -> Path:
    """Return the folder in which a job keeps offsets and state."""
    return work / "checkpoint"


def counts(out: Path) -> pd.DataFrame:
    """Read the job's result without Spark: one row per window and origin."""
    rows = read_table(out)
    # tables hold microseconds and pandas nanoseconds, so equal times would differ
    rows["window_start"] = rows["window_start"].dt.tz_localize(None).dt.as_unit("ns")
    wanted = rows[["window_start", "origin", "count"]]
    return wanted.sort_values(["window_start", "origin"], ignore_index=True)


def read_batches(bootstrap: str, work: Path) -> list[pd.DataFrame]:
    """Read the events of each micro-batch, by the offsets in Spark's checkpoint.

    Columns: event_time and origin, without cancelled flights.
    """
    from logfleet_spark.cluster import Cluster
    from logfleet_spark.offsets import OffsetRange, from_json

    logs = sorted(
        (p for p in (checkpoint(work) / "offsets").iterdir() if p.name.isdigit()),
        key=lambda p: int(p.name),
    )
    ends = [from_json(json.loads(p.read_text().splitlines()[-1])) for p in logs]
    batches, start = [], dict.fromkeys(ends[-1], 0)
    with Cluster(bootstrap) as cluster:
        for end in ends:
            ranges = [OffsetRange(tp, start.get(tp, 0), end[tp]) for tp in sorted(end)]
            values = [
                value for rows in cluster.read(ranges) for value in rows.column("value").to_pylist()
            ]
            events = pd.DataFrame(
                [json.loads(v) for v in values if v], columns=["event_time", "origin"]
            )
            events["event_time"] = pd.to_datetime(events["event_time"])
            batches.append(events.dropna())
            start = end
    return batches
