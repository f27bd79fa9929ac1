import pytest
from logfleet.io.files import PosixFiles, write_file
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.config import LogConfig
from logfleet.log.producers.states import ProducerStates
from logfleet.log.validation import Appended
from logfleet.records.batch import parse_header
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def send(log, sequence, *, producer_id=7, epoch=0):
    batch = build_batch(
        [Record(None, b"\xaa" * 60, NOW)], producer=ProducerStamp(producer_id, epoch, sequence)
    )
    return log.append_as_leader(batch, 0, NOW)


def test_batches_older_than_the_snapshots_are_found_across_segments(rig):
    log = rig.open(SMALL)
    for sequence in range(12):
        for producer_id in (7, 8, 9):
            send(log, sequence, producer_id=producer_id)
    rig.close(log)
    log = rig.open(SMALL)
    for producer_id in (9, 7, 8):
        for sequence in range(7, 12):
            assert send(log, sequence, producer_id=producer_id).duplicate
        assert send(log, 6, producer_id=producer_id).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_between_the_snapshot_and_a_crash_join_those_before(rig):
    log = rig.open(SMALL)
    for sequence in range(10):
        send(log, sequence)
    rig.close(log)
    log = rig.open(SMALL)
    send(log, 10)
    log = rig.open(SMALL, clean=False, recovery_point=10)
    assert send(log, 8).duplicate
    assert send(log, 10).duplicate
    assert not send(log, 11).duplicate


def test_the_log_is_searched_once_per_producer(rig, monkeypatch):
    log = rig.open(SMALL)
    send(log, 0)
    rig.close(log)
    log = rig.open(SMALL)
    assert isinstance(send(log, 5), BatchRefusal)
    monkeypatch.setattr(type(log.producers), "_recall", None)
    assert isinstance(send(log, 5), BatchRefusal)
    assert not send(log, 1).duplicate


def test_a_producer_whose_records_were_deleted_keeps_its_state(rig):
    log = rig.open(SMALL)
    for sequence in range(10):
        send(log, sequence)
    log.delete_records_before(10)
    retain(log, NOW, 10)
    rig.close(log)
    log = rig.open(SMALL, log_start_offset=10)
    assert send(log, 9).duplicate
    assert not send(log, 10).duplicate


def test_a_log_emptied_by_truncation_keeps_its_producers(rig):
    log = rig.open(SMALL)
    batch = build_batch([Record(None, None, NOW)] * 3, producer=ProducerStamp(7, 0, 0))
    log.append_as_leader(batch, 0, NOW)
    batch = build_batch([Record(None, None, NOW)] * 3, producer=ProducerStamp(7, 0, 3))
    log.append_as_leader(batch, 0, NOW)
    log.delete_records_before(4)
    rig.truncate(log, 4)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert send(log, 3).base_offset == 4


def test_a_snapshot_with_only_a_wrong_checksum_is_refused(rig):
    """The sequence of an older write in the pages of a newer one: all of it could be true."""
    log = rig.open()
    for sequence in range(3):
        send(log, sequence)
    rig.close(log)
    (name,) = rig.names(".snapshot")
    newest = rig.files.open(f"{rig.directory}/{name}").pread(1 << 10, 0)
    older = ProducerStates()
    older.update(
        parse_header(build_batch([Record(None, None, NOW)], producer=ProducerStamp(7, 0, 1))), 1
    )
    torn = newest[:6] + older.snapshot()[6:]
    assert len(torn) == len(newest)
    write_file(rig.files, f"{rig.directory}/{name}", torn, durable=False)
    log = rig.open()
    assert [note for note in log.notes if f"{name} is unreadable" in note]
    assert name not in rig.names()
    assert log.producers.states.get(7).last_sequence == 2
    assert send(log, 2).duplicate


class MeanwhileFiles(PosixFiles):
    """Lets something happen between the writing of a snapshot and its renaming."""

    def __init__(self, meanwhile):
        self.meanwhile = meanwhile

    def rename(self, source, target):
        if target.endswith(".snapshot"):
            self.meanwhile()
        super().rename(source, target)


def test_a_roll_does_not_disturb_a_flush_that_writes_the_same_snapshot(rig, monkeypatch):
    monkeypatch.setattr("logfleet.log.producers.history.SNAPSHOT_INTERVAL_BYTES", 1)
    log = rig.open(SMALL)
    while (
        len(log.segments) < 2 or log.segments[-1].size < 350
    ):  # the next batch needs a new segment
        send(log, log.log_end_offset)
    end = log.log_end_offset
    job = log.begin_flush()
    job.run(MeanwhileFiles(lambda: send(log, end)))
    log.complete_flush(job)
    assert log.segments[-1].base_offset == end, "it has rolled"
    assert f"{end:020d}.snapshot" in rig.names(".snapshot")
    assert rig.names(".tmp") == []
    log = rig.open(SMALL, clean=False, recovery_point=end)
    assert log.notes == []
    assert send(log, end).duplicate


def test_a_roll_with_many_producers_leaves_the_snapshot_to_the_next_flush(rig, monkeypatch):
    monkeypatch.setattr("logfleet.log.producers.history.PRODUCERS_AT_ROLL_MAX", 2)
    log = rig.open(SMALL)
    for producer_id in range(3):
        send(log, 0, producer_id=producer_id)
    while len(log.segments) < 2:
        send(log, log.log_end_offset - 2, producer_id=2)
    assert rig.names(".snapshot") == []
    end = log.log_end_offset
    rig.flush(log)
    assert rig.names(".snapshot") == [f"{end:020d}.snapshot"]
    log = rig.open(SMALL, clean=False, recovery_point=end)
    assert [send(log, 0, producer_id=each).duplicate for each in (0, 1)] == [True, True]


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_of_bytes_that_were_lost_does_not_come_back_with_others(seed):
    """Two power losses.

    The first takes the batches of a durable snapshot, the second comes after others took their
    offsets.
    """
    disk = SimDisk(seed)
    rig = LogRig("/logs", disk)
    disk.make_directory(rig.directory)
    log = rig.open()
    send(log, 0)
    rig.flush(log)
    lost = ProducerStates()
    lost.update(
        parse_header(build_batch([Record(None, None, NOW)], producer=ProducerStamp(8, 0, 0))), 1
    )
    write_file(disk, log.producers.path(3), lost.snapshot(), durable=True)
    log = rig.open(clean=False, recovery_point=1)
    assert log.producers.states.get(8) is None
    for sequence in range(1, 5):
        send(log, sequence)
    log.segments[-1].file.fsync()  # as the kernel may do it at any time
    disk.lose_power()
    log = rig.open(clean=False, recovery_point=1)
    assert log.log_end_offset == 5
    assert log.producers.states.get(8) is None
    result = send(log, 4)
    assert isinstance(result, Appended)
    assert result.duplicate
