"""A job as it ships: its file, under the image's entrypoint, with the shipped configuration, asked by Prometheus and told to stop."""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from e2e.harness.program import Program
from e2e.harness.spark_topics import NumberedTopic, read_table

SPARK = Path(__file__).resolve().parents[2]
STARTED_S_MAX = 240.0


@pytest.fixture
def driver(tmp_path, broker, table_jars):
    """A driver as on Kubernetes, but for its executors; (program, topic, port of its UI)."""
    topic = NumberedTopic(broker.bootstrap, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(50):
        value = json.dumps({"n": n, "at": f"2013-01-01T{n // 10:02}:00:00"})
        producer.produce(topic.name, value if n % 10 else "{", partition=n % 2)
    assert producer.flush(20) == 0
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        json.dumps(
            {
                "bootstrap-servers": broker.bootstrap,
                "topic": topic.name,
                "fields": "n INT, at TIMESTAMP",
                "event-time": "at",
                "sink": "delta",
                "output": str(tmp_path / "out"),
                "checkpoint": str(tmp_path / "checkpoint"),
                "trigger": "1 second",
            }
        )
    )
    program = Program("driver", [], tmp_path)
    port = program.ports.reserve()
    program.environment = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(SPARK / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(tmp_path),
    }
    jars = ",".join(map(str, table_jars))
    conf = (f"spark.ui.port={port}", "spark.driver.host=127.0.0.1", f"spark.jars={jars}")
    options = [word for each in conf for word in ("--conf", each)]
    job = [str(SPARK / "jobs" / "window_counts.py"), "--settings", str(settings)]
    entrypoint = str(SPARK / "entrypoint.sh")
    program.command = [entrypoint, "driver", "--master", "local[2]", *options, *job]
    program.launch()
    yield program, topic, port
    program.close()


def told(port):
    """The job's metrics by name; none while it does not answer."""
    address = f"http://127.0.0.1:{port}/metrics/prometheus"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    line = r"^metrics_spark_driver_logfleet_(\w+)_(?:Count|Value)\{.*?\} (\d+)$"
    return {name: int(value) for name, value in re.findall(line, text, re.MULTILINE)}


def test_a_job_tells_its_metrics_and_ends_its_batch_when_it_is_told_to_stop(driver, tmp_path):
    program, topic, port = driver
    lag = "lag_" + re.sub(r"[^a-zA-Z0-9]", "_", topic.name)
    wanted = {"rows": 50, "dead_letters": 5, "trigger_ms": 1_000, f"{lag}_0": 0, f"{lag}_1": 0}
    # a batch's figures are told one after the other
    program.wait_until(lambda: wanted.items() <= told(port).items(), STARTED_S_MAX)
    os.kill(program.pid, 15)
    assert program.wait() == 0, program.tail()
    assert "stopped at the end of a batch" in program.tail()
    rows = read_table(tmp_path / "out")
    assert (len(rows), rows["count"].sum()) == (5, 45)
