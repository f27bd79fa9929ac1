import asyncio
import threading

import pytest
from logfleet.log.flushing.flusher import Flusher
from logfleet.records.record import Record, build_batch

NOW = 1_700_000_000_000

pytestmark = pytest.mark.asyncio


def append(log) -> None:
    log.append_as_leader(build_batch([Record(None, b"v", NOW)]), 0, NOW)


def slow_disk(monkeypatch, log) -> tuple[asyncio.Event, threading.Event]:
    """Each fsync sets the first event, then waits for the second."""
    running, may_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    file_type = type(log.segments[-1].file)
    fsync = file_type.fsync

    def slow(file) -> None:
        loop.call_soon_threadsafe(running.set)
        may_go.wait(60)
        fsync(file)

    monkeypatch.setattr(file_type, "fsync", slow)
    return running, may_go


async def test_a_flush_makes_everything_durable_that_is_there(rig) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    append(log)
    await flusher.flush(log)
    assert log.recovery_point == 1
    assert not log.unflushed
    flusher.stop()


async def test_flushes_of_one_log_follow_each_other(rig, monkeypatch) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    running, may_go = slow_disk(monkeypatch, log)
    append(log)
    first = asyncio.ensure_future(flusher.flush(log))
    await running.wait()
    append(log)
    second = asyncio.ensure_future(flusher.flush(log))
    idle = asyncio.ensure_future(flusher.until_idle(log))
    await asyncio.sleep(0)
    assert not idle.done()
    may_go.set()
    await first
    assert log.recovery_point == 1
    await second
    assert log.recovery_point == 2
    await idle
    flusher.stop()


async def test_a_flush_is_completed_though_its_caller_is_cancelled(rig, monkeypatch) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    running, may_go = slow_disk(monkeypatch, log)
    append(log)
    asked = asyncio.ensure_future(flusher.flush(log))
    await running.wait()
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    idle = asyncio.ensure_future(flusher.until_all_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    may_go.set()
    await idle
    assert log.recovery_point == 1
    log.close().run(rig.files)  # refused while a flush is under way
    flusher.stop()


async def test_a_failed_flush_without_a_waiter_fails_the_close(rig, monkeypatch) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    may_go = threading.Event()

    def failing(_: object) -> None:
        may_go.wait(60)
        raise OSError(5, "bad sector")

    append(log)
    monkeypatch.setattr(type(log.segments[-1].file), "fsync", failing)
    asked = asyncio.ensure_future(flusher.flush(log))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    idle = asyncio.ensure_future(flusher.until_all_idle())
    await asyncio.sleep(0)
    may_go.set()
    with pytest.raises(OSError, match="bad sector"):
        await idle
    await flusher.until_all_idle()
    flusher.stop()


async def test_an_error_of_the_disk_reaches_the_caller(rig, monkeypatch) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    append(log)

    def failing(_: object) -> None:
        raise OSError(5, "bad sector")

    monkeypatch.setattr(type(log.segments[-1].file), "fsync", failing)
    with pytest.raises(OSError, match="bad sector"):
        await flusher.flush(log)
    await flusher.until_idle(log)
    assert log.recovery_point == 0
    flusher.stop()


async def test_those_who_wait_for_one_log_share_its_flushes(rig, monkeypatch) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    running, may_go = slow_disk(monkeypatch, log)
    jobs = []
    begin_flush = log.begin_flush

    def counting():
        jobs.append(begin_flush())
        return jobs[-1]

    monkeypatch.setattr(log, "begin_flush", counting)
    append(log)
    first = asyncio.ensure_future(flusher.flush_to(log, 1, lambda: True))
    await running.wait()
    append(log)
    others = [asyncio.ensure_future(flusher.flush_to(log, 2, lambda: True)) for _ in range(3)]
    may_go.set()
    assert await asyncio.gather(first, *others) == [True] * 4
    assert (log.recovery_point, len(jobs)) == (2, 2)
    flusher.stop()


async def test_a_flush_that_is_not_wanted_any_more_does_not_begin(rig) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    append(log)
    assert not await flusher.flush_to(log, 1, lambda: False)
    assert log.recovery_point == 0
    assert await flusher.flush_to(log, 0, lambda: False)
    flusher.stop()


async def test_a_log_that_is_flushed_without_a_pause_can_be_held(rig) -> None:
    log, flusher = rig.open(), Flusher(rig.files)

    async def flush_on() -> None:
        while True:
            append(log)
            await flusher.flush(log)

    flushing = asyncio.ensure_future(flush_on())
    await asyncio.sleep(0)
    async with asyncio.timeout(30), flusher.holding(log):
        held_at = log.recovery_point
        await flusher.run(lambda: None)
        assert log.recovery_point == held_at
    flushing.cancel()
    await asyncio.wait([flushing])
    await flusher.until_idle(log)
    flusher.stop()


async def test_a_cancelled_holder_lets_no_other_in_early(rig, monkeypatch) -> None:
    log, flusher = rig.open(), Flusher(rig.files)
    running, may_go = slow_disk(monkeypatch, log)
    append(log)
    first = asyncio.ensure_future(flusher.flush(log))
    await running.wait()

    async def hold() -> None:
        async with flusher.holding(log):
            pass

    gives_up, patient = asyncio.ensure_future(hold()), asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.wait([gives_up])
    await asyncio.sleep(0)
    assert not patient.done()
    may_go.set()
    await first
    await patient
    await flusher.flush(log)
    flusher.stop()
