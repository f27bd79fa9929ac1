import pytest

from e2e.perf_kafka import nodes
from e2e.perf_kafka.nodes import await_deleted, disk_bytes, kafka_version


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
        name = "kafka"
        data = tmp_path

    monkeypatch.setattr(nodes, "LITTLE_BYTES", 1000)
    monkeypatch.setattr(nodes, "DELETED_S_MAX", 0.05)
    await_deleted(Node())  # type: ignore[arg-type]
    (tmp_path / "log").write_bytes(b"x" * 100_000)
    with pytest.raises(TimeoutError, match="kafka still holds"):
        await_deleted(Node())  # type: ignore[arg-type]
