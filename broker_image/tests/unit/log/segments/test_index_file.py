import errno

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfleet.io.files import PosixFiles
from logfleet.log.segments.index_entries import OFFSET_ENTRY, TIME_ENTRY
from logfleet.log.segments.index_file import PENDING_BYTES_MAX, IndexFile
from logfleet.log.segments.open_files import OpenFiles


@pytest.fixture
def path(tmp_path):
    return f"{tmp_path}/0.index"


def index(path, entry=OFFSET_ENTRY):
    return IndexFile(OpenFiles(PosixFiles()), path, entry)


def size(path):
    return PosixFiles().status(path).size


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
def test_entries_are_the_same_whether_on_disk_or_not(path, entry):
    subject = index(path, entry)
    expected = [(number, number * 7) for number in range(3000)]
    for pair in expected:
        subject.append(*pair)
    assert 0 < size(path) < 3000 * entry.size, "some are on disk, the newest in memory"
    assert list(subject) == expected
    assert (subject[-1], subject[1700], subject[3]) == (expected[-1], expected[1700], expected[3])
    subject.write()
    assert size(path) == 3000 * entry.size
    assert list(index(path, entry)) == expected


def test_entries_reach_the_disk_when_there_are_enough(path):
    subject = index(path)
    for number in range(PENDING_BYTES_MAX // 8 - 1):
        subject.append(number, number)
    with pytest.raises(FileNotFoundError):
        size(path)
    subject.append(10**6, 10**6)
    assert size(path) == PENDING_BYTES_MAX


@pytest.mark.parametrize("kept", [0, 1, 5, 7, 9, 10])
def test_an_index_is_cut_anywhere_and_goes_on(path, kept):
    subject = index(path)
    expected = [(number, number) for number in range(10)]
    for number in range(10):
        subject.append(number, number)
        if number == 6:
            subject.write()
    subject.truncate(kept)
    assert list(subject) == expected[:kept]
    subject.append(100, 100)
    subject.write()
    assert list(index(path)) == [*expected[:kept], (100, 100)]


def test_there_is_nothing_beyond_the_end(path):
    subject = index(path)
    assert len(subject) == 0
    with pytest.raises(IndexError):
        subject[0]
    subject.append(1, 1)
    with pytest.raises(IndexError):
        subject[1]


def test_only_what_can_be_true_is_kept(path):
    file = PosixFiles().open(path, create=True)
    good = OFFSET_ENTRY.pack(5, 100) + OFFSET_ENTRY.pack(9, 200)
    file.pwrite(good + bytes(20) + b"torn", 0)
    subject = index(path)
    subject.keep_sound(first_max=1000, second_min=1, second_max=1000)
    assert list(subject) == [(5, 100), (9, 200)]
    assert size(path) == 16


def test_a_torn_last_entry_is_cut_off(path):
    PosixFiles().open(path, create=True).pwrite(OFFSET_ENTRY.pack(5, 100) + b"torn", 0)
    subject = index(path)
    subject.keep_sound(first_max=1000, second_min=1, second_max=1000)
    assert size(path) == 8
    index(path + "absent").keep_sound(first_max=1, second_min=0, second_max=1)


def test_zeros_are_no_first_entry_where_none_leads_to_position_zero(path):
    PosixFiles().open(path, create=True).pwrite(bytes(80), 0)
    subject = index(path)
    subject.keep_sound(first_max=1000, second_min=1, second_max=1000)
    assert list(subject) == []


def test_an_index_is_durable_until_it_changes(path):
    subject = index(path)
    assert subject.is_durable
    subject.append(1, 1)
    assert not subject.is_durable
    subject.is_durable = True
    subject.truncate(0)
    assert not subject.is_durable


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=1300),
    written=st.integers(0, 1300),
    wanted=st.lists(st.tuples(st.integers(-1, 12_000), st.sampled_from([0, 1])), max_size=30),
    entry=st.sampled_from([OFFSET_ENTRY, TIME_ENTRY]),
)
def test_the_floor_is_what_a_linear_search_finds(tmp_path, steps, written, wanted, entry):
    path = f"{tmp_path}/floor"
    PosixFiles().open(path, create=True).truncate(0)
    subject = index(path, entry)
    expected = []
    first = second = 0
    for number, (up, along) in enumerate(steps):
        first, second = first + up, second + along
        expected.append((first, second))
        subject.append(first, second)
        if number == written:
            subject.write()
    assert len(subject) == len(expected)
    for key, field in wanted:
        not_beyond = sum(one[field] <= key for one in expected)
        assert subject.floor(key, field) == not_beyond - 1


def test_a_block_that_could_not_be_read_changes_nothing(path, monkeypatch):
    subject = index(path)
    for number in range(2000):
        subject.append(number, number * 7)
    subject.write()
    assert subject[3] == (3, 21)

    def refuse(_files, path, **_):
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(OpenFiles, "get", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            subject[1900]
    assert (subject[1900], subject[3]) == ((1900, 13300), (3, 21))


def test_entries_that_take_the_place_of_all_are_on_disk_once_they_are_written(path):
    subject = index(path)
    for number in range(100):
        subject.append(number, number * 7)
    subject.write()
    subject.replace([(5, 50), (6, 60)])
    assert list(subject) == [(5, 50), (6, 60)]
    assert len(index(path)) == 100
    subject.write()
    assert list(index(path)) == [(5, 50), (6, 60)]
    subject.replace([])
    subject.write()
    assert size(path) == 0
