"""With client.rack a replica of the same zone is read from, with either source, and the plan says how many partitions have one."""

import re

import pytest
from logfleet_spark.batch_reader import BatchReader
from logfleet_spark.options import source_options

from e2e.harness.processes import Rig
from e2e.harness.spark_topics import SOURCES, NumberedTopic, expected, rows, wait_until


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    config = {
        "log.retention.ms": "-1",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    rig = Rig(tmp_path_factory.mktemp("zones"))
    yield rig.fleet(2, zones=["a", "b"], config=config)
    rig.close()


def bytes_out(broker, topic):
    """To consumers; followers are counted apart."""
    status, page = broker.get("/metrics")
    assert status == 200
    label = rf'\{{[^}}]*topic="{re.escape(topic.name)}"[^}}]*\}}'
    found = re.search(rf"^logfleet_topic_bytes_out_total{label} (\S+)", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize("source", SOURCES)
def test_rows_come_from_the_readers_zone(spark, fleet, source):
    a, b = fleet.brokers
    topic = NumberedTopic(a.bootstrap, replicas=2)
    topic.produce(range(300))
    near = {"kafka.client.rack": "b"}
    # a follower may be given to readers once it has all that is committed
    wait_until(lambda: rows(topic.batch(spark, source, **near)) == expected(range(300)))
    before_a, before_b = bytes_out(a, topic), bytes_out(b, topic)
    assert rows(topic.batch(spark, source, **near)) == expected(range(300))
    assert bytes_out(a, topic) == before_a
    assert bytes_out(b, topic) > before_b


def test_a_plan_says_what_is_read_from_elsewhere(fleet, caplog):
    caplog.set_level("INFO", "logfleet_spark")
    bootstrap = fleet.brokers[0].bootstrap
    both, one = NumberedTopic(bootstrap, replicas=2), NumberedTopic(bootstrap)

    def planned(topic, rack):
        caplog.clear()
        options = topic.named({"kafka.client.rack": rack})
        BatchReader(source_options(options, streaming=False)).partitions()
        return caplog.messages

    assert planned(both, "b") == [
        "kafka.client.rack=b: 3 of 3 partitions have a replica there",
    ]
    (elsewhere,) = planned(one, "c")
    assert elsewhere == (
        "kafka.client.rack=c: 0 of 3 partitions have a replica there; "
        f"read from elsewhere: {one.name}-0, {one.name}-1, {one.name}-2"
    )
