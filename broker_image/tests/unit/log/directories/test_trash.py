import errno

import pytest
from logfleet.io.files import PosixFiles, write_file
from logfleet.log.directories.trash import Discarded, Trash, remove
from logfleet.log.segments.open_files import OpenFiles


@pytest.fixture
def trash():
    return Trash(OpenFiles(PosixFiles()))


def test_a_file_is_out_of_use_at_once_and_gone_when_due(trash, tmp_path):
    write_file(PosixFiles(), f"{tmp_path}/f", b"x", durable=False)
    trash.discard(f"{tmp_path}/f", 100)
    assert [file.name for file in tmp_path.iterdir()] == ["f.deleted"]
    assert trash.take_due(99) == []
    assert len(trash) == 1
    remove(PosixFiles(), trash.take_due(100))
    assert list(tmp_path.iterdir()) == []
    assert trash.take_due(10**15) == []


def test_a_directory_goes_with_all_it_holds(trash, tmp_path):
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_text("x")
    trash.add(Discarded(f"{tmp_path}/d", 5))
    remove(PosixFiles(), trash.take_due(5))
    assert list(tmp_path.iterdir()) == []


def test_what_is_gone_already_is_no_error(trash, tmp_path):
    trash.discard(f"{tmp_path}/never", 0)
    assert len(trash) == 0
    write_file(PosixFiles(), f"{tmp_path}/f", b"x", durable=False)
    trash.discard(f"{tmp_path}/f", 0)
    (tmp_path / "f.deleted").unlink()
    trash.add(Discarded(f"{tmp_path}/absent", 0))
    remove(PosixFiles(), trash.take_due(0))


def test_a_file_whose_new_name_finds_no_room_is_removed_at_once(trash, tmp_path, monkeypatch):
    write_file(PosixFiles(), f"{tmp_path}/f", b"x", durable=False)
    error = OSError(errno.ENOSPC, "No space left on device")

    def rename(_files, _source, _target):
        raise error

    monkeypatch.setattr(PosixFiles, "rename", rename)
    trash.discard(f"{tmp_path}/f", 100)
    assert list(tmp_path.iterdir()) == []
    assert len(trash) == 0
    error.errno = errno.EIO
    with pytest.raises(OSError, match="No space"):
        trash.discard(f"{tmp_path}/g", 100)


def test_a_discarded_file_is_not_found_in_the_cache(tmp_path):
    open_files = OpenFiles(PosixFiles())
    path = f"{tmp_path}/f"
    held = open_files.get(path, create=True)
    Trash(open_files).discard(path, 0)
    assert open_files.get(path, create=True) is not held
