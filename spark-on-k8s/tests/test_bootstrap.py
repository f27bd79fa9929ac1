"""A wrong `kafka.bootstrap.servers`: refused by load(), or warned of in spark-submit's output."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.harness.spark_topics import NumberedTopic, expected, rows

CONF = Path(__file__).resolve().parents[1] / "conf"
JOB = """
import sys
from pyspark.sql import SparkSession

bootstrap, checkpoint = sys.argv[1:]
stream = SparkSession.builder.getOrCreate().readStream.format("logfleet").options(**{
    "kafka.bootstrap.servers": bootstrap, "subscribe": "t", "kafka.default.api.timeout.ms": "8000"
})
query = stream.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
"""


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_an_address_where_nobody_answers_is_warned_of_where_a_person_looks(tmp_path):
    """With the shipped settings of the log.

    The process that warns is one of Spark's own, which plans the query.
    """
    job = tmp_path / "job.py"
    job.write_text(JOB)
    bootstrap = f"127.0.0.1:{closed_port()}"
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [
            submit,
            "--master",
            "local[1]",
            "--conf",
            "spark.ui.enabled=false",
            job,
            bootstrap,
            tmp_path / "c",
        ],
        env={**os.environ, "SPARK_CONF_DIR": str(CONF), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("logfleet: ")]
    assert len(warnings) == 1, done.stderr
    wanted = rf"logfleet: no broker has answered at {bootstrap} for [5-7] s: .*{bootstrap}: Connection refused"
    assert re.fullmatch(wanted, warnings[0])


@pytest.mark.parametrize(
    "bootstrap, words",
    [
        ("h:abc", "'h:abc' is no address: write host:port"),
        ("SSL://h:9093", "SSL is not built yet"),
        ("h:1,SASL_SSL://h:2", "SASL_SSL is not built yet"),
    ],
)
def test_what_is_no_address_is_refused_by_load(spark, bootstrap, words):
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t"}
    for reader in (spark.read, spark.readStream):
        with pytest.raises(Exception, match=f"kafka.bootstrap.servers: .*{words}"):
            reader.format("logfleet").options(**options).load()


def test_plaintext_may_stand_before_an_address(spark, broker):
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(9))
    prefixed = {"kafka.bootstrap.servers": f"PLAINTEXT://{broker.bootstrap}"}
    for source in ("logfleet", "kafka"):
        assert rows(topic.batch(spark, source, **prefixed)) == expected(range(9))
