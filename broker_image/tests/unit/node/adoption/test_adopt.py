"""Directories as a stopped Kafka leaves them, made by hand.

A real Kafka's are in e2e/suites/local/test_adopt.py.
"""

import shutil
from pathlib import Path

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.files import PosixFiles
from logfleet.io.sqlite import SqliteStore
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.names import TopicPartition
from logfleet.log.producers.states import ProducerStates
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.store import Put, Txn, UnknownOutcome
from logfleet.node.adoption import adopt as adoption
from logfleet.node.adoption.adopt import adopt
from logfleet.node.adoption.kafka_directories import AdoptionRefused, locked, read_directory
from logfleet.node.broker import Broker, StartError
from logfleet.records.batch import iterate_headers, parse_header
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.store.opening import open_store
from logfleet.types import LeaderEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import PartitionRecord, RemoveTopicRecord, TopicRecord

from broker_image.tests.unit.log.compaction.compaction_rig import append, batches, compact, flushed
from broker_image.tests.unit.log.old_messages import old_message
from broker_image.tests.unit.node.adoption.kraft_frames import framed

pytestmark = pytest.mark.asyncio

A, B = bytes([1]) * 16, bytes([2]) * 16
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
NOW = 1_700_000_000_000
CREATED = (
    framed(TopicRecord(name="a", topic_id=A)),
    framed(PartitionRecord(partition_id=0, topic_id=A, replicas=[1], leader=1, leader_epoch=2)),
)


def batch_of(values, base_offset, **more):
    records = [Record(None, value, NOW) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, **more))


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """One topic, one partition, three records."""
    path = tmp_path / "left"
    log_dir = LogDir(OpenFiles(PosixFiles()), str(path), CLUSTER, 1)
    assert list(log_dir.load(lambda _: LogConfig(), NOW)) == []
    log = log_dir.create(TopicPartition("a", 0), uuids.to_text(A), LogConfig(), NOW)
    log.append_as_leader(build_batch([Record(None, b"v", NOW)] * 3), LeaderEpoch(2), NOW)
    log_dir.close({})
    (path / "__cluster_metadata-0").mkdir()
    metadata_log(path).write_bytes(batch_of([b"leader"], 0, control=True) + batch_of(CREATED, 1))
    return path


def metadata_log(left: Path, offset: int = 0) -> Path:
    return left / "__cluster_metadata-0" / f"{offset:020d}.log"


def config_of(left: Path, **more: str):
    given = {"log.dirs": str(left), "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", **more}
    return broker_config(given)


async def adopted(left: Path, *, execute: bool = True, node: int = 1):
    config = config_of(left, **{"node.id": str(node)})
    return await adopt(PosixFiles(), config, config.log_dirs, execute=execute)


async def test_a_broker_serves_what_was_adopted(left):
    assert not (await adopted(left, execute=False)).written
    assert not (left / "logfleet-metadata.db").exists()
    assert (await adopted(left)).written
    assert (await adopted(left)).was_there
    async with Broker(config_of(left)) as broker:
        partition = broker.rooms.partitions.by_id[A].partitions[0]
        assert partition.log.log_end_offset == 3
        assert partition.leader_epoch > 2
        assert broker.cluster_id == CLUSTER
    assert metadata_log(left).exists(), "Kafka would need it to come back"
    assert (await adopted(left)).was_there


class LosesTheLastAnswer(SqliteStore):
    """Loses the answer to the write that makes the cluster. applied: whether it was applied."""

    applied = True

    async def txn(self, txn: Txn):
        makes = [
            put for put in txn.success if isinstance(put, Put) and put.key == CLUSTER_ID.prefix
        ]
        is_first = makes and await self.get(CLUSTER_ID.prefix) is None
        if is_first:
            await super().txn(txn if self.applied else Txn((), tuple(makes)))
            raise UnknownOutcome("no answer")
        return await super().txn(txn)


@pytest.mark.parametrize("applied", [True, False])
async def test_an_adoption_without_an_answer_is_done_only_if_it_was_this_one(
    left, monkeypatch, applied
):
    """A process that adopts a copy of the same directories writes the same cluster id."""

    async def opened(config):
        store = await LosesTheLastAnswer.open(left / "logfleet-metadata.db")
        assert isinstance(store, LosesTheLastAnswer)
        store.applied = applied
        return store

    monkeypatch.setattr(adoption, "open_store", opened)
    if applied:
        assert (await adopted(left)).written
    else:
        with pytest.raises(AdoptionRefused, match="meanwhile"):
            await adopted(left)


async def test_a_directory_that_is_left_out_after_the_adoption_is_missed(left, tmp_path):
    other = tmp_path / "other"
    LogDir(OpenFiles(PosixFiles()), str(other), CLUSTER, 1).abandon()
    (left / "a-0").rename(other / "a-0")
    both = config_of(left, **{"log.dirs": f"{left},{other}"})
    assert (await adopt(PosixFiles(), both, both.log_dirs, execute=True)).written
    async with Broker(config_of(left)) as broker:
        assert broker.rooms.partitions.find("a", 0) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not (left / "a-0").exists()


async def test_without_an_adoption_the_broker_does_not_touch_it(left):
    before = {path: path.stat().st_mtime_ns for path in left.rglob("*")}
    with pytest.raises(StartError, match="taken over by `logfleet adopt`"):
        async with Broker(config_of(left)):
            pass
    assert {path: path.stat().st_mtime_ns for path in left.rglob("*")} == before


async def test_nothing_is_read_while_somebody_uses_the_directory(left):
    with (
        locked(PosixFiles(), [str(left)]),
        pytest.raises(AdoptionRefused, match="logfleet adopt: stop it first"),
    ):
        await adopted(left)


def write_checkpoint(left: Path) -> None:
    """All up to offset 3 in a snapshot, and a segment that begins there."""
    name = left / "__cluster_metadata-0" / f"{3:020d}-{1:010d}.checkpoint"
    name.write_bytes(batch_of([b"head"], 0, control=True) + batch_of(CREATED, 1))
    metadata_log(left).unlink()
    metadata_log(left, 3).write_bytes(batch_of([framed(TopicRecord(name="b", topic_id=B))], 3))


async def test_the_newest_snapshot_and_the_records_behind_it_count(left):
    write_checkpoint(left)
    problems = (await adopted(left)).adoption.problems
    assert problems == ("topic b has the partitions [], not all from 0 on",)
    metadata_log(left, 4).write_bytes(batch_of([framed(RemoveTopicRecord(topic_id=B))], 4))
    assert (await adopted(left)).written


async def test_a_torn_end_was_never_committed(left):
    path = metadata_log(left)
    torn = batch_of([framed(TopicRecord(name="b", topic_id=B))], 3)
    broken = torn[:-1] + bytes([torn[-1] ^ 1])
    for tail in (torn[:-1], torn[:20], broken, bytes(100)):
        whole = path.read_bytes()
        path.write_bytes(whole + tail)
        assert [topic.name for topic in (await adopted(left, execute=False)).adoption.topics] == [
            "a"
        ]
        path.write_bytes(whole)


@pytest.mark.parametrize("hole", [b"", b"x" * 80])
async def test_a_hole_in_the_metadata_is_refused(left, hole):
    metadata_log(left).write_bytes(metadata_log(left).read_bytes() + hole)
    metadata_log(left, 9).write_bytes(batch_of([framed(TopicRecord(name="b", topic_id=B))], 9))
    with pytest.raises(AdoptionRefused, match="__cluster_metadata-0"):
        await adopted(left)


async def test_directories_that_are_not_kafkas_are_refused(left, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(AdoptionRefused, match=r"has no meta\.properties"):
        await adopted(tmp_path / "empty")
    with pytest.raises(AdoptionRefused, match=r"set node\.id=1"):
        await adopted(left, node=2)
    properties = left / "meta.properties"
    properties.write_text(properties.read_text().replace("directory.id", "other"))
    with pytest.raises(AdoptionRefused, match=r"directory\.id"):
        await adopted(left)


async def test_the_metadata_must_be_somewhere_and_once(left, tmp_path):
    other = tmp_path / "metadata"
    shutil.copytree(left / "__cluster_metadata-0", other / "__cluster_metadata-0")
    config = config_of(left)
    with pytest.raises(AdoptionRefused, match="each hold"):
        await adopt(PosixFiles(), config, (str(left), str(other)), execute=True)
    shutil.rmtree(left / "__cluster_metadata-0")
    with pytest.raises(AdoptionRefused, match="--metadata-dir"):
        await adopted(left)
    done = await adopt(PosixFiles(), config, (str(left), str(other)), execute=True)
    assert done.written


async def test_transactions_are_found(left):
    def found():
        (log,) = read_directory(PosixFiles(), str(left)).logs
        return log.has_aborted, log.has_open

    assert found() == (False, False)
    states = ProducerStates()
    stamp = ProducerStamp(7, 0, 0, transactional=True)
    header = parse_header(build_batch([Record(None, b"v", NOW)], producer=stamp))
    states.update_transactional(header, 0)
    (left / "a-0" / f"{3:020d}.snapshot").write_bytes(states.snapshot())
    assert found() == (False, True)
    (left / "a-0" / f"{0:020d}.txnindex").write_bytes(b"1")
    assert found() == (True, True)


def contents(left: Path) -> dict[str, bytes]:
    """All but the empty lock file, which the check makes."""
    found = (path for path in left.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(left)): path.read_bytes() for path in found}


@pytest.mark.parametrize("name", [f"{0:020d}.log", f"{0:020d}.log.swap"])
@pytest.mark.parametrize("magic", [0, 1])
async def test_messages_of_an_old_format_are_refused_before_anything_is_changed(left, name, magic):
    segment = left / "a-0" / f"{0:020d}.log"
    later = left / "a-0" / f"{9:020d}.log"
    later.write_bytes(batch_of([b"v"], 9))
    mixed = segment.read_bytes() + old_message(3, magic)
    (left / "a-0" / name).write_bytes(mixed + batch_of([b"v"], 4))
    before = contents(left)
    for execute in (False, True):
        done = await adopted(left, execute=execute)
        (problem,) = done.adoption.problems
        assert f"a-0/{name} holds messages of format v0 or v1" in problem
        assert "copy the topic to a new one" in problem
        assert not done.written
        assert contents(left) == before


async def test_segments_are_read_only_until_they_are_adopted(left, monkeypatch):
    assert (await adopted(left)).written
    monkeypatch.setattr(adoption, "format_problems", lambda *_: pytest.fail("read again"))
    assert (await adopted(left)).was_there


COMPACTED = LogConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}))


@pytest.fixture
def killed(left: Path) -> Path:
    """Kafka was killed just after its cleaner had put segments in place.

    No checkpoint has recorded that yet, or what was durable.
    """
    log_dir = LogDir(OpenFiles(PosixFiles()), str(left), CLUSTER, 1)
    (log,) = log_dir.load(lambda _: COMPACTED, NOW)
    for number in range(100):
        append(log, build_batch([Record(b"%d" % (number % 3), b"v", NOW)]), NOW)
    compact(flushed(log, PosixFiles()), PosixFiles(), NOW)
    append(log, build_batch([Record(b"last", b"v", NOW)]), NOW)
    segments = list(log.segments)
    ends = [segment.end_before(segment.size) for segment in segments]
    log_dir.abandon()
    assert any(end < later.base_offset for end, later in zip(ends, segments[1:], strict=False)), (
        "a gap"
    )
    (left / "recovery-point-offset-checkpoint").unlink()
    assert not (left / ".kafka_cleanshutdown").exists()
    return left


async def test_a_killed_kafka_loses_nothing_behind_a_gap_that_its_cleaner_left(killed):
    before = contents(killed)
    offsets = [
        header.base_offset
        for name in sorted(before)
        if name.startswith("a-0/") and name.endswith(".log")
        for _, header in iterate_headers(before[name])
    ]
    done = await adopted(killed, execute=False)
    assert any("was not stopped in order" in note for note in done.adoption.notes)
    assert contents(killed) == before, "a dry run changes nothing"

    assert (await adopted(killed)).written
    assert (killed / ".kafka_cleanshutdown").exists(), "Kafka could go on from here, too"
    for was_clean in (True, False):  # the broker's first start, and one after it was killed
        log_dir = LogDir(OpenFiles(PosixFiles()), str(killed), CLUSTER, 1)
        assert log_dir.was_clean is was_clean
        (log,) = log_dir.load(lambda _: COMPACTED, NOW)
        log_dir.abandon()
        assert log.log_end_offset == 104
        assert [header.base_offset for header, _ in batches(log)] == offsets


async def test_what_kafka_had_written_in_part_is_cut_off_and_reported(killed):
    *_, last = sorted((killed / "a-0").glob("*.log"))
    whole = last.read_bytes()
    last.write_bytes(whole + batch_of([b"torn"], 104)[:-1])
    done = await adopted(killed)
    assert any("bytes cut off" in note for note in done.adoption.notes)
    assert last.read_bytes() == whole


async def test_a_recovery_that_is_interrupted_is_repeated(killed, monkeypatch):
    monkeypatch.setattr(LogDir, "close", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        await adopted(killed)
    assert not (killed / ".kafka_cleanshutdown").exists()
    assert not (killed / "logfleet-metadata.db").exists()
    monkeypatch.undo()
    assert (await adopted(killed)).written
    async with Broker(config_of(killed)) as broker:
        assert broker.rooms.partitions.by_id[A].partitions[0].log.log_end_offset == 104


async def test_unreadable_files_of_a_partition_are_named(left):
    (left / "a-0" / "partition.metadata").write_text("who knows\n")
    with pytest.raises(AdoptionRefused, match="a-0 holds an unreadable file"):
        await adopted(left)


async def test_another_clusters_store_is_refused(left):
    store = await open_store(config_of(left))
    await store.txn(Txn((), (Put(CLUSTER_ID.prefix, b"other"),)))
    await store.close()
    with pytest.raises(AdoptionRefused, match="of cluster other"):
        await adopted(left)


async def test_what_kafka_made_since_the_adoption_is_not_passed_over(left):
    assert (await adopted(left)).written
    records = [
        framed(TopicRecord(name="b", topic_id=B)),
        framed(PartitionRecord(partition_id=0, topic_id=B, replicas=[1], leader=1, leader_epoch=0)),
    ]
    metadata_log(left).write_bytes(metadata_log(left).read_bytes() + batch_of(records, 3))
    (left / "b-0").mkdir()
    (left / "b-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuids.to_text(B)}")
    with pytest.raises(AdoptionRefused, match="Kafka has created topic b since"):
        await adopted(left)
