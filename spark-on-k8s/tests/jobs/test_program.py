"""A job as it ships: its file, under the image's entrypoint, with the shipped configuration."""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

import pandas as pd
import pyspark
import pytest
from confluent_kafka import Producer

from e2e.harness.program import Program
from e2e.harness.spark_topics import NumberedTopic, read_table

SPARK = Path(__file__).resolve().parents[2]
STARTED_S_MAX = 240.0
LINES_MAX = 6
"""Of a job that fails at once: the JVM's greeting, Spark's error in one line, and ours."""
ZONE = "Pacific/Auckland"
MIDNIGHT = pd.Timestamp("2012-12-31 11:00", tz="UTC")
"""The start of 2013 in ZONE, in UTC."""
SHUFFLE_PARTITIONS = 3


@pytest.fixture
def topic(broker):
    """Fifty records in two partitions, each tenth of them no JSON."""
    made = NumberedTopic(broker.bootstrap, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(50):
        value = json.dumps({"n": n, "at": f"2013-01-01T{n // 10:02}:00:00"})
        producer.produce(made.name, value if n % 10 else "{", partition=n % 2)
    assert producer.flush(20) == 0
    return made


@pytest.fixture
def start(tmp_path, broker):
    """Starts a driver as on Kubernetes, but for its executors; gives the program and the port of its metrics."""
    programs = []

    def start(topic, *more):
        settings = tmp_path / "settings.yaml"
        settings.write_text(
            json.dumps(
                {
                    "bootstrap-servers": broker.bootstrap,
                    "topic": topic,
                    "fields": "n INT, at TIMESTAMP",
                    "event-time": "at",
                    "sink": "delta",
                    "output": str(tmp_path / "out"),
                    "checkpoint": str(tmp_path / "checkpoint"),
                }
            )
        )
        program = Program("driver", [], tmp_path)
        programs.append(program)
        program.environment = {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_CONF_DIR": str(SPARK / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(tmp_path),
        }
        port = program.ports.reserve()
        conf = (
            f"spark.ui.port={program.ports.reserve()}",
            "spark.driver.host=127.0.0.1",
            f"spark.sql.session.timeZone={ZONE}",
            f"spark.sql.shuffle.partitions={SHUFFLE_PARTITIONS}",
        )
        options = [word for each in conf for word in ("--conf", each)]
        job = [str(SPARK / "jobs" / "window_counts.py"), "--settings", str(settings)]
        job += ["--metrics-port", str(port), *more]
        entrypoint = str(SPARK / "entrypoint.sh")
        program.command = [entrypoint, "driver", "--master", "local[2]", *options, *job]
        program.launch()
        return program, port

    yield start
    for program in programs:
        program.close()


def scraped(port):
    """The metrics of a job by name and labels; none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    line = r"^logfleet_spark_(\S+) (\S+)$"
    return {name: float(value) for name, value in re.findall(line, text, re.MULTILINE)}


def test_a_job_has_metrics_and_ends_its_batch_when_it_is_asked_to_stop(start, topic, tmp_path):
    program, port = start(topic.name, "--trigger", "1 second")
    lags = {f'lag{{partition="{p}",topic="{topic.name}"}}': 0 for p in range(2)}
    wanted = {"rows_total": 50, "dead_letters_total": 5, "trigger_ms": 1_000, **lags}
    # the figures of a batch change one after the other
    program.wait_until(lambda: wanted.items() <= scraped(port).items(), STARTED_S_MAX)
    os.kill(program.pid, 15)
    assert program.wait() == 0, program.tail()
    assert "stopped at the end of a batch: rows 50, batches " in program.tail()
    rows = read_table(tmp_path / "out")
    assert (len(rows), rows["count"].sum()) == (5, 45)
    assert rows["window_start"].min() == MIDNIGHT, "the job has the user's time zone"
    state = tmp_path / "checkpoint" / "state" / "0"
    assert len([each for each in state.iterdir() if each.name.isdecimal()]) == SHUFFLE_PARTITIONS


def test_a_job_that_fails_ends_with_one_sentence_and_keeps_the_trace(start, tmp_path):
    program, _ = start("nowhere", "--rejected", "none")
    assert program.wait(STARTED_S_MAX) == 1
    lines = program.log.read_text().splitlines()
    trace = tmp_path / "logfleet-window_counts.trace"
    cause = "topic nowhere does not exist; create it or correct the name"
    assert lines[-1] == f"window_counts failed: {cause} (trace: {trace})"
    assert not [line for line in lines if line.startswith(("Traceback", "\t", "  "))]
    assert len(lines) <= LINES_MAX, lines
    assert "latestOffset" in trace.read_text(), "where in the source it was raised"
