import pytest

from e2e.lab.folders import ensure_folders, remove_folders


@pytest.fixture
def record(tmp_path):
    return tmp_path / "state" / "made"


def test_folders_that_were_made_go_and_those_that_were_there_stay(tmp_path, record):
    (tmp_path / "var").mkdir()
    (tmp_path / "there").mkdir()
    ensure_folders(record, [tmp_path / "var/lib/cni", tmp_path / "var/log", tmp_path / "there"])
    assert (tmp_path / "var/lib/cni").is_dir()
    remove_folders(record)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "there", "var"]
    assert list((tmp_path / "var").iterdir()) == []
    assert not record.exists()


def test_a_second_start_forgets_nothing(tmp_path, record):
    for _ in range(2):
        ensure_folders(record, [tmp_path / "opt/volumes"])
    remove_folders(record)
    assert not (tmp_path / "opt").exists()


def test_what_somebody_uses_by_now_stays(tmp_path, record):
    ensure_folders(record, [tmp_path / "etc/cni"])
    (tmp_path / "etc/cni/theirs").touch()
    remove_folders(record)
    assert (tmp_path / "etc/cni/theirs").exists()


def test_without_a_record_nothing_is_removed(tmp_path, record):
    remove_folders(record)
    assert list(tmp_path.iterdir()) == []
