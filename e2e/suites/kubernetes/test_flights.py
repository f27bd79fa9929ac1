"""The whole path: a YAML, brokers in three zones, unmodified clients inside and outside, a Spark job, the same counts."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from e2e.harness import flights
from e2e.harness.images import ROOT, image_name
from e2e.harness.kube.fleet import example
from e2e.harness.kube.kubernetes import ZONE_LABEL
from e2e.harness.kube.kubernetes_rig import TEST_ZONE
from e2e.harness.kube.spark import SparkJobs
from e2e.harness.topics import held

TOPIC = example("topic")["metadata"]["name"]
PUBLISH = ("-m", "e2e.workloads.publish_flights")
PUBLISHED_WITHIN_S = 300
JOBS = "analytics"


@pytest.fixture(scope="module")
def published(fleet, rig):
    """All flights in the topic: even rows from a pod, odd rows from outside through the NodePorts, at once."""
    rig.wait_for_images("test")
    with rig.part("publishing all flights"):
        inside = ["python", *PUBLISH, fleet.inside, TOPIC, "even"]
        rig.kubernetes.run_pod(
            *("publish-even", fleet.namespace, image_name("test"), inside),
            nodeSelector={ZONE_LABEL: TEST_ZONE},
        )
        outside = subprocess.run(
            [sys.executable, *PUBLISH, fleet.outside, TOPIC, "odd"],
            check=True,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PUBLISHED_WITHIN_S,
        ).stdout
        log = rig.kubernetes.wait_ended("publish-even", fleet.namespace, PUBLISHED_WITHIN_S)
    return [json.loads(said.splitlines()[-1])["acknowledged"] for said in (log, outside)]


@pytest.fixture(scope="module")
def jobs(rig):
    rig.wait_for_images("spark", "test")
    return SparkJobs(rig.kubernetes, JOBS)


def test_brokers_run_in_every_zone_with_ids_of_their_own(fleet, rig):
    brokers = fleet.brokers()
    assert sorted(broker["zone"] for broker in brokers) == rig.zones
    assert len({broker["id"] for broker in brokers}) == len(brokers)
    zones = rig.kubernetes.zone_of_node()
    assert [zones[broker["node"]] for broker in brokers] == [broker["zone"] for broker in brokers]


def test_every_record_is_acknowledged_inside_and_outside(published):
    assert published == [flights.TOTAL // 2, flights.TOTAL - flights.TOTAL // 2]


def test_the_topic_holds_each_record_once(published, fleet):
    assert held(fleet.outside, TOPIC) == flights.TOTAL


@pytest.mark.parametrize("source", ["logfleet", "kafka"])
def test_spark_counts_what_pandas_counts(published, fleet, rig, jobs, source):
    with rig.part(f"Spark job with the source {source}"):
        jobs.run(
            f"counts-{source}",
            "window_counts",
            [
                *("--bootstrap-servers", fleet.inside, "--topic", TOPIC, "--source", source),
                *("--fields", flights.FIELDS, "--event-time", "event_time"),
                *("--group-by", "origin", "--window", flights.WINDOW, "--watermark", "24 hours"),
                *("--sink", "delta", "--output", f"/data/{source}/counts"),
                *("--checkpoint", f"/data/{source}/checkpoint"),
            ],
            executors=2,
        )
        counts = jobs.counts(f"/data/{source}/counts")
    expected = flights.counts(flights.table())
    assert int(counts["count"].sum()) == flights.DEPARTED
    pd.testing.assert_frame_equal(counts, expected, check_dtype=False)
