import pytest

from e2e.lab import disks
from e2e.lab.settings import Settings


@pytest.fixture
def settings(tmp_path):
    return Settings(root=tmp_path, zones=(), state=tmp_path / "state")


@pytest.fixture
def ran(monkeypatch):
    """What was asked of the machine's programs, which all succeed."""
    asked: list[str] = []

    def note(*arguments: object, **_: object) -> bool:
        asked.append(" ".join(str(argument) for argument in arguments))
        return True

    monkeypatch.setattr(disks, "run", note)
    monkeypatch.setattr(disks, "succeeds", note)
    return asked


def test_the_disks_leave_room_on_the_machines_own():
    assert disks.size_for(1000 * disks.GIB) == disks.SIZE_MAX
    assert disks.size_for(10 * disks.GIB) == 8 * disks.GIB


def test_disks_are_made_once_and_mounted_again_with_what_they_held(settings, ran):
    for _ in range(2):
        assert disks.mount_disks(settings)
    formats = [line for line in ran if line.startswith("mkfs.ext4")]
    mounts = [line for line in ran if line.startswith("mount")]
    assert len(formats) == 1
    assert len(mounts) == 2
    assert mounts[0] == mounts[1]
    file = settings.run / "disks.ext4"
    assert file.stat().st_size > 0
    assert file.stat().st_blocks == 0, "it is sparse"


def test_a_machine_without_loop_devices_has_plain_folders(settings, ran, monkeypatch):
    monkeypatch.setattr(disks, "succeeds", lambda *_: False)
    assert not disks.mount_disks(settings)
    assert settings.disks.is_dir()


def test_what_is_not_mounted_is_not_unmounted(settings, ran):
    disks.unmount_disks(settings)
    assert ran == []
