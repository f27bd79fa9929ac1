import errno
import io
import os
import signal
import subprocess

import msgspec
import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.compaction.job import cleaning_job, find_cleanable
from logfleet.log.compaction.process import COMMAND
from logfleet.log.compaction.program import Event, NotCleaned, Throttle, serve
from logfleet.log.compaction.round import Cleaned, CleanedSegment
from logfleet.log.config import LogConfig
from logfleet.records.record import Record, build_batch

from broker_image.tests.unit.log.compaction.compaction_rig import SETTINGS, flushed

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}))


@pytest.fixture
def job(rig):
    log = rig.open(CONFIG)
    for n in range(40):
        log.append_as_leader(build_batch([Record(b"k", b"%d" % n * 20, NOW)]), 0, NOW)
    log = flushed(log, rig.files)
    return cleaning_job(log, find_cleanable(log, log.log_end_offset, NOW), SETTINGS, NOW)


def answers(job, files=None):
    """The program's events for this job, which it gets twice."""
    out = io.BytesIO()
    line = msgspec.json.encode(job) + b"\n"
    serve(files or PosixFiles(), io.BytesIO(line + line), out)
    return [msgspec.json.decode(each, type=Event) for each in out.getvalue().splitlines()]


class Broken(PosixFiles):
    def __init__(self, error):
        self.error = error

    def open(self, path, *, create=False):  # noqa: ARG002
        raise self.error


def test_a_job_is_a_line_and_so_is_each_answer(job):
    found = answers(job)
    half = len(found) // 2
    assert found[:half] == [
        each
        if isinstance(each, CleanedSegment)
        else msgspec.structs.replace(each, cpu_s=found[half - 1].cpu_s)
        for each in found[half:]
    ]
    assert isinstance(found[0], CleanedSegment)
    assert isinstance(found[-1], Cleaned)
    assert found[-1].end_offset == job.first_uncleanable


@pytest.mark.parametrize(
    "error, is_lasting, is_disk",
    [
        (OSError(errno.EIO, "broken", "x"), False, True),
        (OSError(errno.ENOSPC, "full", "x"), False, False),
        (OSError(errno.ENFILE, "too many open files", "x"), False, False),
        (FileNotFoundError(errno.ENOENT, "gone", "x"), False, False),
        (MemoryError(), False, False),
        (ZeroDivisionError("a bug"), True, False),
    ],
)
def test_what_goes_wrong_ends_the_job_not_the_program(job, error, is_lasting, is_disk):
    found = answers(job, Broken(error))
    assert len(found) == 2
    for each in found:
        assert isinstance(each, NotCleaned)
        assert (each.is_lasting, each.is_disk) == (is_lasting, is_disk)


def test_the_program_exits_quietly_when_its_broker_is_killed(job):
    """A killed process closes its files first; after that its tethered children are killed."""
    nobody_reads, answers_go_to = os.pipe()
    os.close(nobody_reads)
    ended = subprocess.run(
        COMMAND,
        input=msgspec.json.encode(job) + b"\n",
        stdout=answers_go_to,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(answers_go_to)
    assert (ended.returncode, ended.stderr) == (-signal.SIGPIPE, b"")


def test_what_cannot_be_compacted_is_so_for_good(job, rig):
    path = f"{job.directory}/{job.segments[0][0]:020d}.log"
    rig.files.open(path).pwrite(b"\xff", 100)
    (found, _) = answers(job)
    assert isinstance(found, NotCleaned)
    assert found.is_lasting


def test_a_round_takes_no_more_of_the_disk_than_it_may(job):
    found = answers(job)
    needed = sum(each.size for each in found[: len(found) // 2] if isinstance(each, CleanedSegment))
    assert needed
    last = answers(msgspec.structs.replace(job, room_bytes=needed))[-1]
    assert isinstance(last, Cleaned)
    for room_bytes in (0, needed - 1):
        last = answers(msgspec.structs.replace(job, room_bytes=room_bytes))[-1]
        assert isinstance(last, NotCleaned)
        assert (last.is_lasting, last.is_disk) == (False, False)


def test_what_is_as_it_was_takes_no_room(rig):
    """Its files are written and removed again, one segment after another."""
    log = rig.open(CONFIG)
    for n in range(40):
        log.append_as_leader(build_batch([Record(b"%d" % n, b"v" * 200, NOW)]), 0, NOW)
    log = flushed(log, rig.files)
    job = cleaning_job(log, find_cleanable(log, log.log_end_offset, NOW), SETTINGS, NOW)
    largest = max(size for _, size in job.segments)
    assert len(job.segments) > 2
    (found, again) = answers(msgspec.structs.replace(job, room_bytes=largest))
    assert isinstance(found, Cleaned)
    assert isinstance(again, Cleaned)


def test_a_throttle_keeps_to_its_rate_and_saves_nothing_up():
    now, slept = 100.0, []

    def sleep(seconds):
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = Throttle(1000, clock=lambda: now, sleep=sleep)
    throttle.account(500)
    throttle.account(250)
    assert slept == [0.5, 0.25]
    now += 60
    throttle.account(1000)
    assert slept[2:] == [1.0]
    Throttle(float("inf"), clock=lambda: now, sleep=sleep).account(10**9)
    assert len(slept) == 3
