"""The name of a file within one mount and boot: what keeps it, and what does not."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from logfleet.io import file_identity as module
from logfleet.io.file_identity import file_identity
from logfleet.io.files import PosixFiles


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree that has what sysfs has of the device of `tmp_path`."""
    device = tmp_path.stat().st_dev
    root = tmp_path / "sys"
    (root / "devices/disk1").mkdir(parents=True)
    (root / "dev/block").mkdir(parents=True)
    (root / f"dev/block/{os.major(device)}:{os.minor(device)}").symlink_to("../../devices/disk1")
    (root / "fs/xfs/disk1").mkdir(parents=True)
    monkeypatch.setattr(module, "SYSFS", root)
    monkeypatch.setattr(module, "_generation", lambda _: 7)
    return root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("x")
    return path


def test_a_file_keeps_its_name_when_it_is_written_or_renamed(sysfs, file) -> None:
    named = file_identity(str(file))
    assert named is not None
    file.write_text("more")
    assert PosixFiles().file_identity(str(file)) == named
    renamed = file.rename(file.with_name("renamed"))
    assert file_identity(str(renamed)) == named


def test_a_copy_has_another_name(sysfs, file, tmp_path) -> None:
    copy = shutil.copy2(file, tmp_path / "copy")
    assert file_identity(str(copy)) != file_identity(str(file))


def test_another_mount_has_another_name(sysfs, file) -> None:
    named = file_identity(str(file))
    (sysfs / "fs/xfs/disk1").rename(sysfs / "fs/xfs/before")
    (sysfs / "fs/xfs/disk1").mkdir()
    assert file_identity(str(file)) != named


def test_another_boot_has_another_name(sysfs, file, tmp_path, monkeypatch) -> None:
    named = file_identity(str(file))
    (tmp_path / "boot_id").write_text("another")
    monkeypatch.setattr(module, "BOOT_ID", tmp_path / "boot_id")
    assert file_identity(str(file)) != named


def test_another_file_of_the_same_inode_number_has_another_name(sysfs, file, monkeypatch) -> None:
    named = file_identity(str(file))
    monkeypatch.setattr(module, "_generation", lambda _: 8)
    assert file_identity(str(file)) != named


def test_there_is_no_name_where_the_mount_or_the_generation_is_not_shown(
    sysfs, file, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_generation", lambda _: None)
    assert file_identity(str(file)) is None
    monkeypatch.undo()
    monkeypatch.setattr(module, "SYSFS", sysfs / "nothing")
    assert file_identity(str(file)) is None
    assert file_identity("/proc/self/status") is None


def test_a_file_that_is_not_there_is_an_error(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        file_identity(str(tmp_path / "missing"))


class Volume:
    """An ext4 file system in a file. Mounting it takes root and a loop device."""

    def __init__(self, directory: Path) -> None:
        self._image, self.path = directory / "image", directory / "mount"
        self.path.mkdir()
        self._image.touch()
        os.truncate(self._image, 1 << 24)
        self._run("mkfs.ext4", "-q", str(self._image))
        self._device = self._run("losetup", "-f", "--show", str(self._image))
        self.is_mounted = False

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    def mount(self) -> None:
        self._run("mount", self._device, str(self.path))
        self.is_mounted = True

    def unmount(self) -> None:
        self._run("umount", str(self.path))
        self.is_mounted = False

    def close(self) -> None:
        if self.is_mounted:
            self.unmount()
        self._run("losetup", "-d", self._device)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    try:
        volume = Volume(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device here: {error}")
    try:
        try:
            volume.mount()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"nothing can be mounted here: {error.stderr}")
        yield volume
    finally:
        volume.close()


def test_each_mount_of_an_ext4_volume_has_another_identity(volume: Volume) -> None:
    file = volume.path / "file"
    file.write_text("x")
    named = file_identity(str(file))
    assert named is not None
    assert file_identity(str(file)) == named
    names = {named, file_identity(str(shutil.copy2(file, volume.path / "copy")))}
    for _ in range(3):
        volume.unmount()
        volume.mount()
        names.add(file_identity(str(file)))
    assert len(names) == 5
    assert None not in names
