from pathlib import Path

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir, LogDirRefused
from logfleet.log.names import MOVED
from logfleet.log.segments.open_files import OpenFiles

from broker_image.tests.unit.log.moves.move_rig import NAME, NOW, TOPIC_ID, MoveRig, append

pytestmark = pytest.mark.asyncio


async def two_logs(tmp_path, *, origin_of_b):
    """A stop between the two renames, as it is found: the log in b has a record more."""
    rig = await MoveRig(PosixFiles(), [str(tmp_path / "a"), str(tmp_path / "b")]).load()
    append(rig.create(), 3)
    append(rig.two.create(NAME, TOPIC_ID, LogConfig(), NOW), 4)
    if origin_of_b:
        rig.two.incoming.record_origin(NAME, rig.one.identity.directory_id)
    for log_dir in rig.dirs:
        log_dir.abandon()
    return rig


async def test_a_start_ends_a_move_whose_copy_had_its_name(tmp_path) -> None:
    rig = await two_logs(tmp_path, origin_of_b=True)
    again = await MoveRig(rig.files, [rig.one.path, rig.two.path], rig.flusher).load()
    again.dirs.refuse_duplicates()
    assert again.dirs.dir_of(NAME) is again.two
    assert again.log.log_end_offset == 4
    assert again.two.incoming.origins == {}
    assert Path(rig.two.path, MOVED).read_bytes() == b""
    (removed,) = again.one.take_removals(NOW)
    assert removed.path.endswith("-delete")


async def test_what_is_left_in_a_directory_that_is_away_is_remembered(tmp_path) -> None:
    rig = await two_logs(tmp_path, origin_of_b=True)
    without = await MoveRig(rig.files, [rig.two.path, str(tmp_path / "c")], rig.flusher).load()
    assert without.log.log_end_offset == 4
    for log_dir in without.dirs:
        log_dir.abandon()
    again = await MoveRig(rig.files, [rig.one.path, rig.two.path], rig.flusher).load()
    again.dirs.refuse_duplicates()
    assert again.dirs.dir_of(NAME) is again.two


async def test_two_logs_that_no_move_explains_are_for_a_person(tmp_path) -> None:
    rig = await two_logs(tmp_path, origin_of_b=False)
    again = await MoveRig(rig.files, [rig.one.path, rig.two.path], rig.flusher).load()
    with pytest.raises(LogDirRefused, match="has two logs"):
        again.dirs.refuse_duplicates()


async def test_an_origin_without_the_log_is_ignored(tmp_path) -> None:
    rig = await MoveRig(PosixFiles(), [str(tmp_path / "a"), str(tmp_path / "b")]).load()
    append(rig.create(), 3)
    rig.two.incoming.record_origin(NAME, rig.one.identity.directory_id)
    for log_dir in rig.dirs:
        log_dir.abandon()
    again = await MoveRig(rig.files, [rig.one.path, rig.two.path], rig.flusher).load()
    assert again.dirs.dir_of(NAME) is again.one
    assert again.log.log_end_offset == 3
    assert again.two.incoming.origins == {}


async def test_an_unreadable_file_of_origins_is_reported(tmp_path) -> None:
    LogDir(OpenFiles(PosixFiles()), str(tmp_path), "cluster", 1).abandon()
    (tmp_path / MOVED).write_text("no equals sign")
    found = LogDir(OpenFiles(PosixFiles()), str(tmp_path), "cluster", 1)
    assert found.incoming.origins == {}
    assert any(MOVED in note for note in found.notes)
    found.abandon()


async def test_origins_are_durable_and_by_partition(tmp_path) -> None:
    rig = await MoveRig(PosixFiles(), [str(tmp_path / "a"), str(tmp_path / "b")]).load()
    incoming = rig.two.incoming
    incoming.record_origin(NAME, "one")
    incoming.record_origin(NAME, "two")
    assert Path(rig.two.path, MOVED).read_text() == "topic-0=two\n"
    incoming.record_origin(NAME, None)
    assert incoming.origins == {}
    assert Path(rig.two.path, MOVED).read_text() == ""
