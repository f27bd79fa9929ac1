import asyncio
import errno
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.files import PosixFile, PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dirs import LogDirError
from logfleet.log.moves import log_move
from logfleet.log.moves.log_move import NotMoved
from logfleet.log.names import TopicPartition
from logfleet.log.recovery.truncater import Truncater
from logfleet.records.record import Record, build_batch

from broker_image.tests.unit.log.moves.move_rig import (
    NAME,
    NOW,
    MoveRig,
    append,
    content,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(log_move, "SLICE_BYTES", 1000)
    monkeypatch.setattr(log_move, "LAST_BYTES", 1000)
    monkeypatch.setattr(log_move, "FLUSH_BYTES", 3000)
    monkeypatch.setattr(log_move, "TRY_AGAIN_S", 0)
    made = await MoveRig(PosixFiles(), [str(tmp_path / "a"), str(tmp_path / "b")]).load()
    append(made.create(), 40)
    made.log.start_epoch(3)
    append(made.log, 20, epoch=3)
    yield made
    for log_dir in made.dirs:
        log_dir.abandon()
    made.flusher.stop()


def names(log_dir):
    return sorted(each.name for each in Path(log_dir.path).iterdir() if each.is_dir())


async def reloaded(rig, *, is_clean=True):
    if is_clean:
        for log_dir in rig.dirs:
            log_dir.close({NAME: rig.log.log_end_offset})
    else:
        for log_dir in rig.dirs:
            log_dir.abandon()
    return await MoveRig(rig.files, [rig.one.path, rig.two.path], rig.flusher).load()


async def test_a_log_goes_on_in_the_other_directory(rig) -> None:
    log, before, epochs = rig.log, content(rig.log), rig.log.epochs.entries
    await rig.move()
    assert rig.log is log
    assert rig.dirs.dir_of(NAME) is rig.two
    assert log.directory == f"{rig.two.path}/topic-0"
    assert (content(log), log.epochs.entries) == (before, epochs)
    assert rig.copied == sum(map(len, before.values()))
    assert names(rig.two) == ["topic-0"]
    assert [name for name in names(rig.one) if not name.endswith("-delete")] == []
    append(log, 30, epoch=3)
    rig.flush()
    for is_clean in (True, False):
        again = await reloaded(rig, is_clean=is_clean)
        assert again.dirs.dir_of(NAME) is again.two
        assert content(again.log) == content(log)
        assert again.log.epochs.entries == epochs
        assert again.log.notes == []
        rig = again


async def test_it_is_appended_to_and_flushed_meanwhile(rig) -> None:
    log = rig.log
    move = asyncio.create_task(rig.move())
    while not move.done():
        append(log, epoch=3)
        await rig.flusher.flush(log)
    await move
    assert rig.dirs.dir_of(NAME) is rig.two
    assert list(content(log)) == list(range(log.log_end_offset))
    assert log.log_end_offset > 61
    assert log.producers.states.get(7).last_sequence == log.log_end_offset - 1


async def test_it_goes_there_and_back(rig) -> None:
    before = content(rig.log)
    await rig.move()
    await rig.move(rig.one)
    assert rig.dirs.dir_of(NAME) is rig.one
    again = await reloaded(rig)
    assert again.dirs.dir_of(NAME) is again.one
    assert content(again.log) == before
    assert [name for name in names(rig.two) if not name.endswith("-delete")] == []


async def test_records_that_were_deleted_do_not_come_back(rig) -> None:
    rig.log.delete_records_before(33)
    await rig.move()
    assert rig.two.incoming.origins == {}
    again = await reloaded(rig, is_clean=False)
    assert again.log.log_start_offset == 33
    assert list(content(again.log)) == list(range(33, 60))


async def test_an_empty_log_moves(rig) -> None:
    rig.log.delete_records_before(60)
    while rig.log.apply_retention(NOW, 60) is not None:
        pass
    await rig.move()
    append(rig.log, epoch=3)
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (60, 61)
    assert rig.dirs.dir_of(NAME) is rig.two


async def test_nothing_is_left_of_a_move_that_is_not_wanted_any_more(rig, until) -> None:
    rig.wait_ms = lambda: 1 if rig.copied > 3000 else 0
    move = asyncio.create_task(rig.move())
    await until(lambda: rig.copied > 3000)
    assert [name.rpartition("-")[2] for name in names(rig.two)] == ["future"]
    rig.is_wanted = False
    with pytest.raises(NotMoved, match="not wanted"):
        await move
    assert rig.dirs.dir_of(NAME) is rig.one
    assert (rig.two.incoming.futures, rig.dirs.moving) == ({}, set())
    assert [each.path.rpartition("-")[2] for each in rig.two.take_removals(NOW * 2)] == ["future"]


async def test_a_log_cut_within_the_copied_part_is_copied_again(rig, until) -> None:
    def failed(*_):
        raise AssertionError

    truncater = Truncater(rig.dirs, rig.flusher, rig.checkpointer, failed)
    rig.wait_ms = lambda: 1 if rig.copied > 6000 else 0
    move = asyncio.create_task(rig.move())
    await until(lambda: rig.copied > 6000)
    assert await truncater.truncate(rig.log, 20, lambda: True)
    append(rig.log, 50, epoch=5)
    rig.wait_ms = lambda: 0
    expected = content(rig.log)
    await move
    assert rig.dirs.dir_of(NAME) is rig.two
    assert content(rig.log) == expected
    again = await reloaded(rig)
    assert [(each.epoch, each.start_offset) for each in again.log.epochs.entries] == [
        (0, 0),
        (5, 20),
    ]


async def test_a_cut_behind_the_copy_costs_nothing(rig, until) -> None:
    truncater = Truncater(rig.dirs, rig.flusher, rig.checkpointer, lambda *_: None)
    rig.wait_ms = lambda: 1 if rig.copied > 3000 else 0
    move = asyncio.create_task(rig.move())
    await until(lambda: rig.copied > 3000)
    assert await truncater.truncate(rig.log, 55, lambda: True)
    rig.wait_ms = lambda: 0
    await move
    assert rig.copied == sum(map(len, content(rig.log).values()))
    assert rig.dirs.dir_of(NAME) is rig.two


async def test_a_copy_below_the_log_start_is_begun_again(rig, until) -> None:
    rig.wait_ms = lambda: 1 if rig.copied > 3000 else 0
    move = asyncio.create_task(rig.move())
    await until(lambda: rig.copied > 3000)
    rig.log.delete_records_before(50)
    rig.wait_ms = lambda: 0
    await move
    assert list(content(rig.log)) == list(range(50, 60))
    assert rig.log.segments[0].base_offset == 50


async def test_batches_that_compaction_took_from_the_end_keep_their_offsets(rig) -> None:
    rig.log.skip_to(100, NOW)
    await rig.move()
    rig.log.append_as_leader(build_batch([Record(None, b"next", NOW)]), 3, NOW)
    again = await reloaded(rig, is_clean=False)
    assert again.log.log_end_offset == 101
    assert again.dirs.dir_of(NAME) is again.two


async def test_a_target_that_fails_leaves_the_log_where_it_is(rig, monkeypatch) -> None:
    before = content(rig.log)
    pwrite = PosixFile.pwrite

    def failing(file, data, position):
        if "-future/" in file.path and file.path.endswith(".log") and rig.copied > 3000:
            raise OSError(errno.EIO, "bad sector", file.path)
        return pwrite(file, data, position)

    monkeypatch.setattr(PosixFile, "pwrite", failing)
    with pytest.raises(LogDirError) as raised:
        await rig.move()
    assert raised.value.log_dir is rig.two
    assert rig.dirs.dir_of(NAME) is rig.one
    assert content(rig.log) == before
    append(rig.log, epoch=3)


async def test_a_source_that_fails_ends_the_move_and_keeps_what_was_copied(rig, until) -> None:
    rig.wait_ms = lambda: 1 if rig.copied > 3000 else 0
    move = asyncio.create_task(rig.move())
    await until(lambda: rig.copied > 3000)
    rig.dirs.take_out(rig.one)
    with pytest.raises(NotMoved, match="not where it was"):
        await move
    assert [name.rpartition("-")[2] for name in names(rig.two)] == ["future"]
    assert rig.two.take_removals(NOW * 2) == []


async def test_a_start_removes_copies_but_not_the_last_one_of_a_log(rig, until) -> None:
    rig.wait_ms = lambda: 1 if rig.copied > 3000 else 0
    move = asyncio.create_task(rig.move())
    await until(lambda: rig.copied > 3000)
    move.cancel()
    await asyncio.wait([move])
    other = rig.two.incoming.begin(
        TopicPartition("lost", 3), "bQrxV1XaQAyDOV5OYVsTsQ", LogConfig(), 0, NOW
    )
    again = await reloaded(rig, is_clean=False)
    assert again.dirs.dir_of(NAME) is again.one
    (removed,) = again.two.take_removals(NOW)
    assert Path(removed.path).name.startswith("topic-0.")
    assert Path(other.directory).exists()


async def test_a_name_that_is_taken_there_refuses_the_move(rig) -> None:
    taken = Path(rig.two.path, "topic-0")
    taken.mkdir()
    (taken / "what").write_text("is this")
    with pytest.raises(NotMoved, match="is there already"):
        await rig.move()
    assert rig.dirs.dir_of(NAME) is rig.one
