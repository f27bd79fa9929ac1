"""What each event leaves for the next flush to do, seen in the jobs that a log hands out."""

from dataclasses import dataclass

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.names import LEADER_EPOCHS, PARTITION_METADATA
from logfleet.records.record import Record, build_batch
from logfleet.replication.leader_epochs import NO_EPOCH

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0)
TOPIC_ID = "bQrxV1XaQAyDOV5OYVsTsQ"


def fill(log, count, *, epoch=0):
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, b"\xaa" * 60, NOW)]), epoch, NOW)


@dataclass
class Work:
    """What a job does, by the names of files.

    Directories are "." for the log's own and ".." for the one around it.
    """

    synced: list[str]
    written: list[str]
    directories: list[str]

    @classmethod
    def of(cls, job, rig):
        relative = {rig.directory: ".", rig.directory.rpartition("/")[0]: ".."}
        return cls(
            [file.path.rpartition("/")[2] for file in job.files],
            [path.rpartition("/")[2] for path, _ in job.writes],
            [relative[path] for path in job.directories],
        )


def log_files(segments):
    return [segment.log_path.rpartition("/")[2] for segment in segments]


def flushed(rig, config=SMALL, count=0):
    log = rig.open(config)
    fill(log, count)
    rig.flush(log)
    return log


def rolled(rig):
    """A log where only the first batch of its second segment is not flushed."""
    log = rig.open(SMALL)
    while len(log.segments) < 2:
        rig.flush(log)
        fill(log, 1)
    return log


def begun(log, rig):
    return Work.of(log.begin_flush(), rig)


def test_a_new_log_needs_its_names_and_whose_it_is(rig):
    log = rig.open()
    assert log.unflushed
    assert begun(log, rig) == Work([PARTITION_METADATA], [], [".", ".."])


def test_what_is_flushed_needs_nothing(rig):
    log = flushed(rig, count=20)
    assert not log.unflushed
    assert begun(log, rig) == Work([], [], [])


def test_an_append_needs_the_active_segment_only(rig):
    log = flushed(rig, LogConfig(), count=1)
    fill(log, 1)
    assert log.unflushed
    assert begun(log, rig) == Work(log_files(log.segments), [], [])


def test_an_epoch_needs_its_file(rig):
    log = flushed(rig)
    log.start_epoch(3)
    assert log.unflushed
    assert begun(log, rig) == Work([], [LEADER_EPOCHS], [])


def test_a_roll_needs_the_closed_segment_once_more_and_the_new_names(rig):
    log = rolled(rig)
    work = begun(log, rig)
    assert [name for name in work.synced if name.endswith(".log")] == log_files(log.segments)
    assert len(work.synced) == 4, "both indexes of the closed one"
    assert work.directories == ["."]


def test_what_was_removed_needs_its_names_and_is_not_asked_for(rig):
    log = flushed(rig)
    fill(log, 20)
    log.delete_records_before(log.segments[2].base_offset)
    assert retain(log, NOW, 20) == 2
    work = begun(log, rig)
    assert [name for name in work.synced if name.endswith(".log")] == log_files(log.segments)
    assert work.directories == ["."]


def test_a_cut_segment_is_flushed_although_the_recovery_point_lies_behind_it(rig):
    log = flushed(rig, LogConfig(), count=5)
    rig.truncate(log, 3)
    assert log.recovery_point == log.log_end_offset == 3
    assert log.unflushed
    assert log_files(log.segments)[0] in begun(log, rig).synced


def test_an_abandoned_flush_is_done_again(rig):
    log = rolled(rig)
    log.start_epoch(3)
    first = begun(log, rig)
    log.abandon_flush()
    assert log.unflushed
    again = begun(log, rig)
    assert set(first.synced) <= set(again.synced)
    assert (again.written, again.directories) == (first.written, first.directories)


def test_an_abandoned_flush_of_a_new_log_is_done_again(rig):
    log = rig.open()
    first = begun(log, rig)
    log.abandon_flush()
    assert begun(log, rig) == first


def test_an_abandoned_flush_asks_for_nothing_that_was_durable(rig):
    """A log of a thousand segments would need as many descriptors."""
    log = flushed(rig, count=30)
    fill(log, 1)
    log.begin_flush()
    log.abandon_flush()
    assert set(begun(log, rig).synced) <= {
        path.rpartition("/")[2] for segment in log.segments[-2:] for path in segment.paths
    }


def test_a_segment_removed_after_an_abandoned_flush_is_not_asked_for(rig):
    log = flushed(rig)
    fill(log, 20)
    log.begin_flush()
    log.abandon_flush()
    log.delete_records_before(20)
    assert retain(log, NOW, 20) > 1
    rig.flush(log)
    assert log.recovery_point == 20


def test_what_happens_during_a_flush_is_left_to_the_next(rig):
    log = flushed(rig)
    fill(log, 1)
    job = log.begin_flush()
    while len(log.segments) == 1:
        fill(log, 1)
    log.start_epoch(3)
    log.complete_flush(job)
    work = begun(log, rig)
    assert set(log_files(log.segments)) < set(work.synced)
    assert (work.written, work.directories) == ([LEADER_EPOCHS], ["."])


def test_a_topic_id_set_during_a_flush_is_written_by_the_next(rig):
    rig.files.remove(f"{rig.directory}/{PARTITION_METADATA}")
    log = rig.open()
    job = log.begin_flush()
    log.topic_id = TOPIC_ID
    log.complete_flush(job)
    assert log.unflushed
    rig.flush(log)
    assert rig.open().topic_id == TOPIC_ID


def test_closing_twice_has_nothing_to_do_the_second_time(rig):
    log = flushed(rig)
    fill(log, 1)
    rig.close(log)
    assert Work.of(log.close(), rig) == Work([], [], [])


def test_closing_what_was_opened_and_not_changed_has_nothing_to_do(rig):
    rig.close(flushed(rig, count=20))
    assert Work.of(rig.open(SMALL).close(), rig) == Work([], [], [])


def test_closing_a_log_cut_and_filled_up_to_where_it_was_closed_has_something_to_do(rig):
    rig.close(flushed(rig, LogConfig(), count=20))
    log = rig.open()
    rig.truncate(log, 10)
    fill(log, 10)
    rig.flush(log)
    assert f"{20:020d}.snapshot" not in rig.names()
    rig.close(log)
    assert f"{20:020d}.snapshot" in rig.names()


@pytest.mark.parametrize("seed", range(10))
def test_names_that_a_killed_process_made_are_durable_after_the_next_flush(seed):
    disk = SimDisk(seed)
    rig = LogRig("/logs", disk)
    fill(
        rig.open(), 1, epoch=NO_EPOCH
    )  # whose file would bring the names; and killed before the first flush
    rig.flush(rig.open(clean=False))
    disk.lose_power()
    assert rig.open(clean=False, recovery_point=1).log_end_offset == 1
