"""What writes a batch is killed at each point of its transaction, and so is its broker: each row is there once."""

import subprocess
import sys
from contextlib import ExitStack

import pytest
from logfleet.client.offsets import OffsetSpec, TopicPartition
from logfleet_spark.client_options import client_options
from logfleet_spark.cluster import Cluster
from logfleet_spark.offsets import OffsetRange

from e2e.harness.spark_topics import NumberedTopic

WRITER = """
import sys
import pyarrow as pa
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet_spark.cluster import Cluster
from logfleet_spark.exactly_once import VersionedBatch

bootstrap, topic, point = sys.argv[1:]
commit = TransactionalProducer.commit

def reach(here):
    if here == point:
        print("reached", flush=True)
        sys.stdin.readline()

async def held(producer):
    await producer.records.flush()
    reach("before the decision")
    await commit(producer)
    reach("after the decision")

def rows():
    for value in ("a", "b"):
        yield pa.record_batch([pa.array([value] * 100)], names=["value"])
        reach("amid the rows")

TransactionalProducer.commit = held
with Cluster(bootstrap) as cluster:
    print(cluster.write_once(rows(), topic, VersionedBatch(topic, 0, 200)), flush=True)
"""
POINTS = ("amid the rows", "before the decision", "after the decision")
COMMITTED = client_options({"kafka.isolation.level": "read_committed"}, "batch read")


@pytest.fixture(scope="module")
def killable(rig):
    return rig.broker()


def writer(topic: NumberedTopic, point: str) -> "subprocess.Popen[str]":
    """A process that writes the batch; it prints `reached` at the point, and waits for a line."""
    command = [sys.executable, "-c", WRITER, topic.bootstrap, topic.name, point]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "killed",
    ["driver", *(pytest.param(k, marks=pytest.mark.full) for k in ("driver twice", "broker"))],
)
def test_each_row_is_there_once(killable, killed, point):
    """The broker is the leader, and the coordinator of the transaction and of its number."""
    topic = NumberedTopic(killable.bootstrap, partitions=1)
    with ExitStack() as stack:
        for _ in range(2 if killed == "driver twice" else 1):
            process = stack.enter_context(writer(topic, point))
            if process.poll() is None and next_line(process) != "reached":
                break  # the batch was there already
            if killed == "broker":
                killable.kill()
                killable.start()
                process.communicate("\n" * 2)
            else:
                process.kill()
                process.wait()
        last = stack.enter_context(writer(topic, ""))
        was_decided = killed == "broker" or point == "after the decision"
        assert next_line(last) == str(not was_decided)
    where = TopicPartition(topic.name, 0)
    with Cluster(topic.bootstrap, COMMITTED) as cluster:
        end = cluster.offsets({where: OffsetSpec.LATEST})[where]
        batches = list(cluster.read([OffsetRange(where, 0, end)], columns=("value",)))
    values = [bytes(value) for batch in batches for value in batch.column("value").to_pylist()]
    assert sorted(values) == [b"a"] * 100 + [b"b"] * 100
