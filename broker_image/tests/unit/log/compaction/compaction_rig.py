"""Runs a round of compaction in the test's own process, step by step; reads the log after it."""

import contextlib

from logfleet.config.cleaner import CleanerSettings
from logfleet.log.compaction.job import cleaning_job, find_cleanable
from logfleet.log.compaction.round import Cleaned, CleanedSegment, Cleaning
from logfleet.log.compaction.round_swap import Swaps
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.swap import remove_cleaned
from logfleet.log.validation import prepare_fully
from logfleet.records.batch import iterate_headers
from logfleet.records.record import read_records

SALT = bytes(16)
SETTINGS = CleanerSettings(1, 15.0, 1 << 20, 0.9, 1e300)


def append(log, batch, now):
    """Append a client's batch, compressed or not."""
    return log.append_as_leader(prepare_fully(batch, log.config, now, log.partition), 0, now)


def compact(log, files, now, committed_end=None, settings=SETTINGS):
    """One round; what came of it, or None if nothing in the log was dirty."""
    found = find_cleanable(log, log.log_end_offset if committed_end is None else committed_end, now)
    if not found.dirty_bytes:
        return None
    job = cleaning_job(log, found, settings, now)
    for event in Cleaning(files, job, salt=SALT, account=lambda _: None).run():
        if isinstance(event, CleanedSegment):
            swap(log, event, now)
        else:
            assert isinstance(event, Cleaned)
            log.ends.compacted(event.end_offset)
            remove_cleaned(files, log.directory)
            return event
    raise AssertionError


class InPlace(Flusher):
    """Without threads: what it runs is done when it returns."""

    def __init__(self):
        pass

    async def run(self, work, *args):
        return work(*args)

    def holding(self, log):  # noqa: ARG002  there is no concurrency
        return contextlib.nullcontext()


def swap(log, cleaned, now):
    """Put a new segment in place as the broker does; an OSError leaves everything as it was."""
    steps = Swaps(log, log.truncations, InPlace(), lambda *_: None, lambda: None, lambda: None)
    with contextlib.suppress(StopIteration):
        steps.put_in_place(cleaned, now).send(None)


def flushed(log, files):
    """The log, durable and known to be so."""
    job = log.begin_flush()
    job.run(files)
    log.complete_flush(job)
    log.ends.checkpointed(log.recovery_point)
    return log


def batches(log):
    """(header, records) of all batches, read as a consumer does."""
    found, offset = [], log.log_start_offset
    while isinstance(piece := log.read(offset, 1 << 20), FileSlice):
        content = piece.read()
        for position, header in iterate_headers(content):
            found.append((header, list(read_records(content, position))))
            offset = header.next_offset
    return found


def records(log):
    return [record for _, each in batches(log) for record in each]


def latest(log):
    """Each key's last value as a consumer of the whole log sees it, without what is deleted."""
    values = {}
    for record in records(log):
        values[record.key] = record.value
    return {key: value for key, value in values.items() if value is not None}
