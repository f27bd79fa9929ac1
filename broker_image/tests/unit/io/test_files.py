import errno
import fcntl
import os
import struct
import subprocess
import sys

import pytest
from logfleet.io.files import (
    Entry,
    FileLocked,
    PosixFiles,
    is_out_of_descriptors,
    is_out_of_space,
    is_shortage,
    process_name,
    read_file,
    remove_if_there,
    remove_tree,
    write_file,
)
from structlog.testing import capture_logs

from broker_image.tests.unit.io.descriptors import open_files


@pytest.fixture
def files():
    return PosixFiles()


def test_a_file_is_written_and_read_at_positions(files, tmp_path):
    file = files.open(f"{tmp_path}/f", create=True)
    file.pwrite(b"hello", 3)
    file.pwrite(memoryview(bytearray(b"J")), 3)
    assert file.pread(100, 0) == b"\0\0\0Jello"
    assert file.pread(2, 4) == b"el"
    assert file.pread(10, 100) == b""
    file.truncate(4)
    file.fsync()
    assert file.size() == 4
    assert files.status(f"{tmp_path}/f").size == 4


def test_a_file_is_closed_when_nothing_refers_to_it(files, tmp_path):
    file = files.open(f"{tmp_path}/f", create=True)
    assert open_files(tmp_path) == [f"{tmp_path}/f"]
    del file
    assert open_files(tmp_path) == []


def test_an_open_file_outlives_its_name(files, tmp_path):
    path = f"{tmp_path}/f"
    write_file(files, path, b"data", durable=True)
    file = files.open(path)
    files.rename(path, path + ".deleted")
    files.remove(path + ".deleted")
    assert file.pread(4, 0) == b"data"
    assert os.pread(file.fileno(), 4, 0) == b"data"


def test_a_missing_file_is_an_error_with_its_path(files, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        files.open(f"{tmp_path}/absent")
    assert missing.value.filename == f"{tmp_path}/absent"
    assert read_file(files, f"{tmp_path}/absent") is None


@pytest.mark.parametrize(
    "operation",
    [
        lambda file: file.pread(1, -1),
        lambda file: file.pwrite(b"x", -1),
        lambda file: file.truncate(-1),
    ],
)
def test_an_error_names_the_file(files, tmp_path, operation):
    file = files.open(f"{tmp_path}/f", create=True)
    with pytest.raises(OSError, match="Invalid argument") as failed:
        operation(file)
    assert failed.value.filename == f"{tmp_path}/f"


def test_a_full_disk_is_an_error_with_the_path(files):
    with pytest.raises(OSError, match="No space left") as failed:
        files.open("/dev/full").pwrite(b"x", 0)
    assert failed.value.filename == "/dev/full"


def test_directories_are_listed_made_and_removed(files, tmp_path):
    root = f"{tmp_path}/a/b"
    files.make_directory(root)
    files.make_directory(root)
    write_file(files, f"{root}/f", b"", durable=False)
    files.make_directory(f"{root}/d")
    listed = sorted(files.list_directory(root), key=lambda entry: entry.name)
    assert listed == [Entry("d", is_directory=True), Entry("f", is_directory=False)]
    files.fsync_directory(root)
    remove_tree(files, root)
    remove_tree(files, root)
    assert files.list_directory(f"{tmp_path}/a") == []
    files.remove_directory(f"{tmp_path}/a")
    space = files.space(str(tmp_path))
    assert 0 < space.usable_bytes <= space.total_bytes


def test_a_link_to_a_directory_is_one_and_is_removed_without_what_it_leads_to(files, tmp_path):
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(kept)
    assert files.list_directory(f"{tmp_path}/tree") == [Entry("link", is_directory=True)]
    remove_tree(files, f"{tmp_path}/tree")
    (tmp_path / "link").symlink_to(kept)
    remove_tree(files, f"{tmp_path}/link")
    assert [entry.name for entry in files.list_directory(str(tmp_path))] == ["kept"]
    assert (kept / "inner").is_dir()


def test_a_file_is_replaced_in_one_step(files, tmp_path):
    path = f"{tmp_path}/f"
    for content in (b"a longer content", b"short"):
        write_file(files, path, content, durable=True)
        assert read_file(files, path) == content
    assert [entry.name for entry in files.list_directory(str(tmp_path))] == ["f"]
    remove_if_there(files, path)
    remove_if_there(files, path)


def test_a_second_lock_names_the_holder(files, tmp_path):
    path = f"{tmp_path}/.lock"
    lock = files.lock(path, process_name())
    with pytest.raises(FileLocked) as refused:
        files.lock(path, "another")
    assert refused.value.holder == process_name()
    assert str(os.getpid()) in str(refused.value)
    lock.release()
    lock.release()
    files.lock(path, "another").release()


@pytest.mark.parametrize("failing", ["ftruncate", "close"])
def test_a_disk_that_fails_keeps_no_lock(files, tmp_path, monkeypatch, failing):
    """As CoreUtils.swallow around FileLock.destroy.

    What follows from a failed directory must follow.
    """
    path, call = f"{tmp_path}/.lock", getattr(os, failing)
    lock = files.lock(path, "us")

    def fail(*given):
        if failing == "close":
            call(*given)  # as on Linux the descriptor is gone all the same
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(os, failing, fail)
        lock.release()
        lock.release()
    assert open_files(tmp_path) == []
    assert [(row["event"], row["path"]) for row in logs] == [("lock_released_with_error", path)]
    files.lock(path, "another").release()


def failing_with(number):
    def fail(*_given):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("failing", ["ftruncate", "pwrite", "pread"])
def test_a_disk_that_fails_before_the_lock_is_complete_keeps_neither_it_nor_its_descriptor(
    files, tmp_path, monkeypatch, failing
):
    path = f"{tmp_path}/.lock"
    other = files.lock(path, "another") if failing == "pread" else None
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, failing_with(errno.EIO))
        with pytest.raises(OSError, match="Input/output error") as failed:
            files.lock(path, "us")
    assert (failed.value.errno, failed.value.filename) == (errno.EIO, path)
    assert open_files(tmp_path) == ([path] if other else [])
    if other is not None:
        other.release()
    files.lock(path, "another").release()


@pytest.mark.parametrize("failing", ["ftruncate", "pwrite"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_can_be_locked(files, tmp_path, monkeypatch, failing, number):
    """Only the holder's name is missing, which is for people: a full disk has not failed."""
    path = f"{tmp_path}/.lock"
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(os, failing, failing_with(number))
        lock = files.lock(path, "us")
    assert [(row["event"], row["path"]) for row in logs] == [("lock_holder_not_written", path)]
    with pytest.raises(FileLocked, match="locked by another process"):
        files.lock(path, "another")
    lock.release()
    assert open_files(tmp_path) == []
    files.lock(path, "another").release()


def test_a_lock_excludes_those_that_java_takes(files, tmp_path):
    path = f"{tmp_path}/.lock"
    lock = files.lock(path, "us")
    attempt = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", attempt, path]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    lock.release()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_lock_of_another_process_is_respected_and_ends_with_it(files, tmp_path):
    path = f"{tmp_path}/.lock"
    hold = (
        "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FileLocked, match="another process"):
            files.lock(path, "us")
        holder.stdin.close()
        holder.wait()
    files.lock(path, "us").release()


def test_the_lock_structure_is_that_of_this_machine():
    # F_OFD_GETLK fills in the structure: were its layout another, the type would not be where it is
    # looked for.
    assert struct.calcsize("@hhqqi4x") == 32
    assert fcntl.F_OFD_SETLK > 0


@pytest.mark.parametrize(
    "number, is_space, is_descriptors",
    [
        (errno.ENOSPC, True, False),
        (errno.EDQUOT, True, False),
        (errno.EMFILE, False, True),
        (errno.ENFILE, False, True),
        (errno.EIO, False, False),
        (errno.EROFS, False, False),
    ],
)
def test_what_is_short_is_no_failure(number, is_space, is_descriptors):
    error = OSError(number, "")
    assert is_out_of_space(error) is is_space
    assert is_out_of_descriptors(error) is is_descriptors
    assert is_shortage(error) is (is_space or is_descriptors)
