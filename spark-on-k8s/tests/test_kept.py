"""The connection that a worker keeps between its tasks."""

import os
import threading

import pytest
from logfleet.client.offsets import TopicPartition
from logfleet_spark import kept
from logfleet_spark.client_options import ClientOptions
from logfleet_spark.cluster import Cluster
from logfleet_spark.kept import kept_cluster
from logfleet_spark.offsets import OffsetRange

from e2e.harness.spark_topics import NumberedTopic

OPTIONS = ClientOptions()


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept, "_kept", None)
    yield
    if kept._kept is not None:
        kept._kept.cluster.close()


@pytest.fixture
def closed(monkeypatch):
    """Clusters in the order in which they are closed."""
    found: list[Cluster] = []
    close = Cluster.close

    def noted(cluster: Cluster) -> None:
        found.append(cluster)
        close(cluster)

    monkeypatch.setattr(Cluster, "close", noted)
    return found


def used(bootstrap: str = "127.0.0.1:1", options: ClientOptions = OPTIONS) -> Cluster:
    with kept_cluster(bootstrap, options) as cluster:
        return cluster


def test_the_next_task_has_the_same_cluster(closed):
    first = used()
    assert used() is first
    assert closed == []


@pytest.mark.parametrize(
    "bootstrap, options", [("127.0.0.1:2", OPTIONS), ("127.0.0.1:1", ClientOptions(group="g"))]
)
def test_another_cluster_and_other_options_have_one_of_their_own(closed, bootstrap, options):
    first = used()
    assert used(bootstrap, options) is not first
    assert closed == [first]


def test_one_that_was_not_used_for_long_is_replaced(closed, monkeypatch):
    first = used()
    monkeypatch.setattr(kept, "LEASE_S", -1.0)
    assert used() is not first
    assert closed == [first]


def test_one_whose_task_failed_or_was_given_up_is_closed(closed):
    def task():
        with kept_cluster("127.0.0.1:1", OPTIONS) as cluster:
            yield cluster

    given_up = task()
    first = next(given_up)
    given_up.close()
    assert closed == [first]
    with pytest.raises(ValueError, match="failed"), kept_cluster("127.0.0.1:1", OPTIONS) as second:
        raise ValueError("failed")
    assert closed == [first, second]
    assert used() not in closed


def test_a_task_within_a_task_has_a_cluster_of_its_own(closed):
    with kept_cluster("127.0.0.1:1", OPTIONS) as outer:
        inner = used()
        assert inner is not outer
    assert closed == [inner]
    assert used() is outer


def test_another_thread_and_a_forked_process_leave_it_alone(closed):
    first = used()
    found = []
    thread = threading.Thread(target=lambda: found.append(used()))
    thread.start()
    thread.join()
    assert found[0] is not first
    mine = used()
    pid = os.fork()
    if not pid:
        os._exit(0 if kept._take_kept("127.0.0.1:1", OPTIONS) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert used() is mine
    for left in (first, found[0]):  # what another thread kept is dropped, not closed
        left.close()


def test_a_topic_that_was_created_again_between_two_tasks_is_read(broker):
    topic = NumberedTopic(broker.bootstrap, partitions=1)
    for count in (5, 7):
        topic.produce(range(count), spread=1)
        with Cluster(broker.bootstrap) as planner:
            ids = {each.name: each.topic_id for each in planner.find([topic.name])}
        ranges = [OffsetRange(TopicPartition(topic.name, 0), 0, count)]
        with kept_cluster(broker.bootstrap, OPTIONS) as cluster:
            rows = sum(batch.num_rows for batch in cluster.read(ranges, ids))
        assert rows == count
        topic.delete()
        topic.create(1)
