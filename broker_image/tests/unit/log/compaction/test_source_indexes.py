import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.aborted import AbortedEntry
from logfleet.log.compaction.source_indexes import SourceIndexes


class Counting(PosixFiles):
    def __init__(self):
        self.opened = []

    def open(self, path, *, create=False):
        self.opened.append(path.rpartition("/")[2])
        return super().open(path, create=create)


@pytest.fixture
def files():
    return Counting()


def indexes(files, tmp_path, segments, behind=()):
    """segments: the entries of each, None for one without a file."""
    paths = []
    for number, entries in enumerate(segments):
        path = tmp_path / str(number)
        paths.append(str(path))
        if entries is not None:
            path.write_bytes(b"".join(entry.pack() for entry in entries))
    return SourceIndexes(files, paths, behind)


A, B, C = AbortedEntry(1, 0, 5, 6), AbortedEntry(2, 3, 15, 12), AbortedEntry(3, 12, 25, 26)


def test_indexes_are_read_until_all_transactions_before_the_end_have_ended(files, tmp_path):
    found = indexes(files, tmp_path, [[A], [B], [C], []], [AbortedEntry(4, 28, 50, 51)])
    assert list(found.up_to(6)) == [A]
    assert list(found.up_to(10)) == [B]
    assert list(found.up_to(12)) == []
    assert files.opened == ["0", "1"]
    assert list(found.up_to(20)) == [C]
    assert files.opened == ["0", "1", "2"]


def test_those_that_end_behind_the_segments_come_last_and_once(files, tmp_path):
    behind = AbortedEntry(4, 2, 50, 51)
    found = indexes(files, tmp_path, [[A], None], [behind])
    assert list(found.up_to(10)) == [A, behind]
    assert list(found.up_to(20)) == []


def test_a_torn_entry_at_the_end_is_left_out(files, tmp_path):
    found = indexes(files, tmp_path, [[A]])
    with (tmp_path / "0").open("ab") as file:
        file.write(b"torn")
    assert list(found.up_to(10)) == [A]
