"""What ships, as it ships: submit.sh and the chart run the jobs on flights with broken and late ones among them, each driver killed once.

Only what a lab's node lacks is set: the processors that are asked for, and the zone of the volume.
"""

import json
import re
from dataclasses import dataclass

import pandas as pd
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from e2e.harness import flights
from e2e.harness.kube.fleet import CHARTS, TOPICS, topic
from e2e.harness.kube.kubernetes import ZONE_LABEL, wait_for
from e2e.harness.kube.kubernetes_rig import SPARK_ZONE
from e2e.harness.kube.spark import SparkJobs
from e2e.harness.topics import ends

JOBS = "spark-jobs"
FLIGHTS = 40_000
BROKEN_EVERY = 200
BROKEN = (b"{", b"", b"no JSON", b"\xff\xfe")
LATE = 100
"""Flights of New Year, sent when it is spring; at 24 hours of watermark they are late whatever batches there are."""
PARTITIONS = 3
JOB_WITHIN_S = 600.0
METRICS = (
    "import urllib.request as u; print(u.urlopen('http://localhost:8090/metrics').read().decode())"
)
SETTINGS = ("--fields", flights.FIELDS, "--max-offsets-per-trigger", "8000")


@dataclass(frozen=True)
class Messy:
    """A topic of flights, and what is in it. late: flights as they were sent once more."""

    name: str
    table: pd.DataFrame
    sound: list[bytes]
    broken: list[bytes]
    late: list[bytes]


def produced(bootstrap, name, values):
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(name, value, partition=number % PARTITIONS)
        producer.poll(0)
        if number % 5_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def messy(fleet, rig):
    names = ("messy", "messy-good", "messy-dead")
    for name in names:
        rig.kubernetes.apply(topic(name, fleet.name, PARTITIONS), namespace=fleet.namespace)
    for name in names:
        fleet.wait_topic(name)
    table = flights.table().head(FLIGHTS)
    sound = [value for _, value in flights.records(table)]
    assert len(set(sound)) == FLIGHTS
    mixed, broken = [], []
    for number, value in enumerate(sound):
        mixed.append(value)
        if number % BROKEN_EVERY == 0:
            broken.append(BROKEN[number // BROKEN_EVERY % len(BROKEN)])
            mixed.append(broken[-1])
    late = [json.dumps({**json.loads(value), "carrier": "late"}).encode() for value in sound[:LATE]]
    with rig.part("publishing flights, broken and late ones among them"):
        produced(fleet.outside, "messy", [*mixed, *late])
    yield Messy("messy", table, sound, broken, late)
    # One replica each: a suite that takes a broker's volume would leave them without any.
    for name in names:
        rig.kubernetes.delete(TOPICS, name, fleet.namespace)


@pytest.fixture(scope="module")
def jobs(rig):
    rig.wait_for_images("spark", "test")
    return SparkJobs(rig.kubernetes, JOBS)


@pytest.fixture
def killed_once(jobs, rig, tmp_path):
    """Runs a job of submit.sh whose driver is killed once a batch is committed, and which is submitted again then."""

    def run(job, arguments, checkpoint):
        name, log = job.replace("_", "-"), tmp_path / "submit.log"
        given = [*arguments, "--checkpoint", checkpoint]
        with rig.part(f"{job}, its driver killed"):
            first = jobs.submit(f"{name}-1", job, given, log)
            jobs.kill_driver(f"{name}-1", checkpoint)
            assert first.wait(JOB_WITHIN_S) == 1, log.read_text()
        with rig.part(f"{job}, submitted again"):
            second = jobs.submit(f"{name}-2", job, given, log)
            assert second.wait(JOB_WITHIN_S) == 0, log.read_text()[-8000:]

    return run


def held(bootstrap, name):
    """All records of a topic."""
    until = ends(bootstrap, name)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(name, p, OFFSET_BEGINNING) for p in range(len(until))])
    records: list[Message] = []
    for _ in range(sum(end - start for start, end in until)):
        message = consumer.poll(60)
        assert message is not None, f"{len(records)} records came"
        assert message.error() is None
        records.append(message)
    consumer.close()
    return records


def test_counts_by_window_are_those_of_pandas(messy, fleet, jobs, killed_once):
    arguments = ["--bootstrap-servers", fleet.inside, "--topic", messy.name, *SETTINGS]
    arguments += ["--event-time", "event_time", "--group-by", "origin", "--sink", "delta"]
    killed_once("window_counts", [*arguments, "--output", "/data/counts"], "/data/c/counts")
    pd.testing.assert_frame_equal(
        jobs.counts("/data/counts"), flights.counts(messy.table), check_dtype=False
    )
    kept = jobs.rows("/data/counts-rejected", ["partition", "offset", "error"])
    assert not kept.duplicated(["partition", "offset"]).any()
    assert len(kept) == len(messy.broken)


@pytest.mark.full
def test_each_record_is_routed_by_whether_it_can_be_read(messy, fleet, killed_once):
    """At least once: what a killed batch had written is written again, and its origin tells that it is the same."""
    arguments = ["--bootstrap-servers", fleet.inside, "--topic", messy.name, *SETTINGS]
    arguments += ["--output-topic", "messy-good", "--dlq-topic", "messy-dead"]
    killed_once("dlq_router", arguments, "/data/c/route")
    good = [message.value() for message in held(fleet.outside, "messy-good")]
    assert set(good) == {*messy.sound, *messy.late}
    letters = {}
    for message in held(fleet.outside, "messy-dead"):
        headers = {key: value.decode() for key, value in message.headers()}
        assert headers["__dlq.errors.topic"] == messy.name
        place = headers["__dlq.errors.partition"], headers["__dlq.errors.offset"]
        letters[place] = message.value() or b""
    assert sorted(letters.values()) == sorted(messy.broken)


RELEASE = "keep"
OF_RELEASE = f"app.kubernetes.io/instance={RELEASE}"


def values_of(messy, fleet):
    """Of the chart: the topic as a table that follows it."""
    cluster, _, rest = fleet.inside.partition("-bootstrap.")
    return {
        "job": "topic_to_table",
        "cluster": {"name": cluster, "namespace": rest.split(".")[0].split(":")[0]},
        "settings": {
            "topic": messy.name,
            "fields": flights.FIELDS,
            "day-of": "event_time",
            "output": "/data/flights",
            "checkpoint": "/data/checkpoint",
            "max-offsets-per-trigger": 8000,
            "trigger": "2 seconds",
        },
        "driver": {"cpu": "100m"},
        "executor": {"cpu": "100m"},
        "nodeSelector": {ZONE_LABEL: SPARK_ZONE},
    }


def told(kubernetes):
    """(the driver's pod, the metrics of its job: name and labels -> value)."""
    drivers = kubernetes.pods(JOBS, f"spark-role=driver,{OF_RELEASE}")
    running = [p["metadata"]["name"] for p in drivers if "deletionTimestamp" not in p["metadata"]]
    if not running:
        return "", {}
    (pod,) = running
    text = kubernetes.execute(pod, JOBS, "python", "-c", METRICS)
    line = r"^logfleet_spark_(\S+) (\S+)$"
    return pod, {name: float(value) for name, value in re.findall(line, text, re.MULTILINE)}


@pytest.mark.full
def test_the_chart_keeps_a_topic_as_a_table(messy, fleet, rig, jobs):
    """A stream: its Deployment makes a new driver for the killed one; uninstalled, it ends its batch."""
    kubernetes = rig.kubernetes

    def in_its_first_batches():
        pod, metrics = told(kubernetes)
        return pod if metrics.get("batches_total", 0) > 0 else None

    def all_is_read():
        _, metrics = told(kubernetes)
        lag = 'lag{{partition="{}",topic="{}"}}'
        left = [metrics.get(lag.format(p, messy.name)) for p in range(PARTITIONS)]
        return left == [0] * PARTITIONS

    with rig.part("topic_to_table by the chart, its driver killed"):
        kubernetes.install(RELEASE, CHARTS / "spark-job", JOBS, values_of(messy, fleet))
        first = wait_for("a batch", in_its_first_batches, JOB_WITHIN_S)
        kubernetes.kubectl("delete", "pod", first, "--grace-period=0", "--force", namespace=JOBS)
        wait_for("all to be read", all_is_read, JOB_WITHIN_S)
    with rig.part("topic_to_table, uninstalled"):
        kubernetes.helm("uninstall", RELEASE, "-n", JOBS)
        wait_for("its pods to go", lambda: not kubernetes.pods(JOBS, OF_RELEASE), 180)
    columns = ["origin", "carrier", "flight"]
    rows = jobs.rows("/data/flights", ["partition", "offset", *columns, "day"], f"{RELEASE}-data")
    assert not rows.duplicated(["partition", "offset"]).any()
    sent = pd.concat([messy.table, messy.table.head(LATE).assign(carrier="late")])
    ours, theirs = (frame[columns].value_counts().sort_index() for frame in (rows, sent))
    pd.testing.assert_series_equal(ours, theirs, check_dtype=False)
    departed = messy.table["event_time"].dropna().dt.strftime("%Y-%m-%d").value_counts()
    by_day = rows[rows["carrier"] != "late"]["day"].value_counts()
    assert all(by_day[day] >= count for day, count in departed.items())
