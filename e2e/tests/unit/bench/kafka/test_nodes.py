import pytest

from e2e.bench.conditions import kafka_version
from e2e.bench.kafka import nodes
from e2e.bench.kafka.nodes import Cluster, disk_bytes


def test_the_release_of_kafka_is_that_of_the_pom():
    assert kafka_version() == "4.4.0"


def test_the_disk_that_files_take_is_counted_without_their_holes(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "full").write_bytes(b"x" * 100_000)
    with (tmp_path / "empty").open("wb") as file:
        file.truncate(10_000_000)
    assert 100_000 <= disk_bytes(tmp_path) < 1_000_000


def test_a_topic_that_never_leaves_the_disk_is_told_of(tmp_path, monkeypatch):
    class Node:
        data = tmp_path

    cluster = Cluster("kafka", [Node()])  # type: ignore[list-item]

    monkeypatch.setattr(nodes, "LITTLE_BYTES", 1000)
    monkeypatch.setattr(nodes, "DELETED_S_MAX", 0.05)
    cluster.await_deleted()
    (tmp_path / "log").write_bytes(b"x" * 100_000)
    with pytest.raises(TimeoutError, match="kafka still holds"):
        cluster.await_deleted()


def test_a_cluster_is_all_its_nodes_and_what_stands_beside_them_is_told_apart():
    class Node:
        def __init__(self, number: int) -> None:
            self.pid, self.bootstrap = number, f"127.0.0.1:{number}"

    cluster = Cluster("ours", [Node(1), Node(2)], [Node(3)])  # type: ignore[list-item]
    assert cluster.bootstrap == "127.0.0.1:1,127.0.0.1:2"
    assert (cluster.pids, cluster.beside_pids) == ([1, 2], [3])
