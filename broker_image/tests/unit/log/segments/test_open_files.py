from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from logfleet.io.files import PosixFiles, write_file
from logfleet.log.segments.open_files import OpenFiles

from broker_image.tests.unit.io.descriptors import open_files


@pytest.fixture
def paths(tmp_path):
    listed = [f"{tmp_path}/{number}" for number in range(5)]
    for path in listed:
        write_file(PosixFiles(), path, path.encode(), durable=False)
    return listed


def test_a_file_is_opened_once(paths):
    cache = OpenFiles(PosixFiles())
    assert cache.get(paths[0]) is cache.get(paths[0])
    assert len(cache) == 1


def test_the_least_recently_used_file_is_closed(tmp_path, paths):
    cache = OpenFiles(PosixFiles(), limit=3)
    first = [cache.get(path) for path in paths[:3]]
    assert cache.get(paths[0]) is first[0]
    del first
    for path in paths[3:]:
        cache.get(path)
    assert len(cache) == 3
    assert open_files(tmp_path) == [paths[0], *paths[3:]]
    kept = cache.get(paths[0])
    assert kept.pread(100, 0) == paths[0].encode()
    assert len(cache) == 3


def test_a_file_dropped_from_the_cache_stays_readable(paths):
    cache = OpenFiles(PosixFiles(), limit=1)
    held = cache.get(paths[0])
    cache.get(paths[1])
    Path(paths[0]).unlink()
    assert held.pread(100, 0) == paths[0].encode()


def test_a_forgotten_file_is_opened_again(paths):
    cache = OpenFiles(PosixFiles())
    first = cache.get(paths[0])
    cache.drop(paths[0])
    cache.drop(paths[0])
    assert cache.get(paths[0]) is not first


def test_a_missing_file_is_made_only_on_request(tmp_path):
    cache = OpenFiles(PosixFiles())
    with pytest.raises(FileNotFoundError):
        cache.get(f"{tmp_path}/new")
    assert cache.get(f"{tmp_path}/new", create=True).size() == 0


def test_many_threads_may_ask_for_files_of_their_own(tmp_path) -> None:
    files = OpenFiles(PosixFiles(), limit=3)

    def ask(thread: int) -> None:
        for turn in range(300):
            path = f"{tmp_path}/{thread}-{turn % 4}"
            assert files.get(path, create=True).path == path
            if turn % 7 == 0:
                files.drop(path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert len(files) <= 3
