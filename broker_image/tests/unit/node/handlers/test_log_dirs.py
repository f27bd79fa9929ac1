import pytest
from logfleet.io.files import Space
from logfleet.log.directories.log_dir import LogDir
from logfleet.node.handlers import log_dirs
from logfleet.node.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from logfleet.records.record import Record, build_batch
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
VERSIONS = range(1, 6)


async def ask(host, wanted: dict[str, list[int]] | None = None, version: int = 5):
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None
    if wanted is not None:
        topics = [kind(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    request = DescribeLogDirsRequest(topics=topics)
    answer = await describe_log_dirs(host, request, host.context(version))
    encode(answer, version)
    return answer.results


def sizes(result) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_size
        for topic in result.topics
        for row in topic.partitions
    }


async def test_sizes_and_room_are_reported(host, monkeypatch) -> None:
    monkeypatch.setattr(log_dirs, "LOGS_AT_ONCE", 1)
    for index in (0, 1):
        host.host("t", index)
    record = build_batch([Record(None, b"value", NOW)])
    host.host("u").append(record, NOW)
    expected = {("t", 0): 0, ("t", 1): 0, ("u", 0): len(record)}
    for version in VERSIONS:
        (result,) = await ask(host, version=version)
        assert (result.error_code, sizes(result)) == (0, expected)
        assert (result.usable_bytes > 0) == (result.total_bytes > 0) == (version >= 4)
    (result,) = await ask(host, {"t": [1, 1, 7], "nope": [0]})
    assert sizes(result) == {("t", 1): 0}
    (result,) = await ask(host, {})
    assert sizes(result) == {}


async def test_a_directory_that_failed_is_reported(host, monkeypatch) -> None:
    host.host("t")

    def space(_path: str) -> Space:
        raise OSError(5, "bad sector")

    monkeypatch.setattr(host.log_dirs.open_files.files, "space", space)
    (result,) = await ask(host)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    (log_dir,) = host.log_dirs
    host.log_dirs.take_out(log_dir)
    (failed,) = await ask(host, version=3)
    assert (failed.error_code, failed.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, log_dir.path)


async def alter(host, paths: list[tuple[str, str, list[int]]], version: int):
    kind = AlterReplicaLogDirsRequest
    dirs = [
        kind.AlterReplicaLogDir(
            path=path, topics=[kind.AlterReplicaLogDirTopic(name=topic, partitions=indexes)]
        )
        for path, topic, indexes in paths
    ]
    answer = await alter_replica_log_dirs(host, kind(dirs=dirs), host.context(version))
    encode(answer, version)
    return {
        (result.topic_name, row.partition_index): row.error_code
        for result in answer.results
        for row in result.partitions
    }


async def test_where_logs_are_to_be_is_taken_or_refused(host, tmp_path) -> None:
    (log_dir,) = host.log_dirs
    other = LogDir(host.log_dirs.open_files, str(tmp_path / "other"), "cluster", 1)
    host.log_dirs.dirs.append(other)
    record = build_batch([Record(None, b"value", NOW)])
    host.host("t").append(record, NOW)
    host.know_topic("t", {0: 1, 1: 2})
    for version in (1, 2):
        asked = [
            ("/nowhere", "t", [0]),
            (other.path, "t", [0, 1, 7]),  # the last counts
            (other.path, "u", [0]),
            (log_dir.path, "t" * 220, [0]),
        ]
        assert await alter(host, asked, version) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.REPLICA_NOT_AVAILABLE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t" * 220, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
    here, there = await ask(host)
    assert [row.is_future_key for row in here.topics[0].partitions] == [False]
    (row,) = there.topics[0].partitions
    assert (row.is_future_key, row.offset_lag, row.partition_size) == (True, 1, 0)
    here, there = await ask(host, {"u": [0]})
    assert there.topics == []
    assert await alter(host, [(log_dir.path, "t", [0])], 2) == {("t", 0): ErrorCode.NONE}
    here, there = await ask(host)
    assert there.topics == []
    other.abandon()
