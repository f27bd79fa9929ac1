"""The end of a slice, for which Fetch lists aborted transactions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.io.files import PosixFiles
from logfleet.log.config import LONG_MAX, LogConfig
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.batch import iterate_headers
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch, Position

from broker_image.tests.unit.log.log_rig import LogRig

NOW = 1_700_000_000_000
END = 90


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Batches of three records, in segments of about seven."""
    rig = LogRig(str(tmp_path_factory.mktemp("log")))
    opened = rig.open(LogConfig(segment_bytes=800, index_interval_bytes=250))
    for _ in range(0, END, 3):
        opened.append_as_leader(build_batch([Record(None, b"value", NOW)] * 3), LeaderEpoch(0), NOW)
    assert len(opened.segments) > 3
    return opened


@given(offset=st.integers(0, END - 1), size=st.integers(1, 2_000), behind=st.integers(1, END))
def test_the_end_of_a_slice_is_that_of_its_last_batch(
    log: Any, offset: int, size: int, behind: int
) -> None:
    end_offset = min(offset + behind, END)
    found = log.read(offset, size, end_offset)
    if found is None:
        return
    *_, (_, last) = iterate_headers(found.read())
    assert last.next_offset <= found.end_offset <= end_offset
    assert found.end_offset - last.next_offset < 3, "no batch lies between"


def test_a_slice_behind_which_the_file_was_cut_ends_nowhere_before_its_batches(
    tmp_path: Any,
) -> None:
    """One aborted transaction too few would be an aborted read."""
    files = PosixFiles()
    path = str(tmp_path / "segment")
    (tmp_path / "segment").write_bytes(bytes(100))
    assert FileSlice(files.open(path), Position(0), 95).end_offset == LONG_MAX
