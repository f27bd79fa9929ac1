from itertools import starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.checkpoints.files import (
    CorruptCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    format_properties,
    offset_line,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from logfleet.log.names import TopicPartition
from logfleet.replication.leader_epochs import EpochStart
from logfleet.types import LeaderEpoch

OFFSETS = st.dictionaries(
    st.builds(
        TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 99)
    ),
    st.integers(0, 2**62),
)


@given(OFFSETS)
def test_offset_checkpoints_survive_a_round_trip(offsets):
    assert parse_offsets(format_offsets(list(starmap(offset_line, offsets.items())))) == offsets


def test_offset_checkpoints_are_kafkas_files():
    lines = [offset_line(TopicPartition("b", 0), 7), offset_line(TopicPartition("a", 10), 5)]
    assert format_offsets(lines) == b"0\n2\nb 0 7\na 10 5\n"


def test_epochs_are_kafkas_file():
    entries = (EpochStart(LeaderEpoch(0), 0), EpochStart(LeaderEpoch(5), 100))
    assert format_epochs(entries) == b"0\n2\n0 0\n5 100\n"
    assert parse_epochs(b"0\n2\n0 0\n5 100\n") == entries


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n1\n",
        b"0\n0\na 1 2\n",
        b"0\n1\na 1\n",
        b"0\n1\na b 1\n",
        b"\xff\n0\n",
    ],
)
def test_a_damaged_checkpoint_is_corrupt(data):
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(data)


def test_partition_metadata_is_kafkas_file():
    data = format_partition_metadata("bQrxV1XaQAyDOV5OYVsTsQ")
    assert data == b"version: 0\ntopic_id: bQrxV1XaQAyDOV5OYVsTsQ"
    assert parse_partition_metadata(data) == "bQrxV1XaQAyDOV5OYVsTsQ"
    with pytest.raises(CorruptCheckpoint):
        parse_partition_metadata(b"version: 0\n")


def test_properties_as_java_writes_them_are_read():
    data = b"#\n#Tue Jan 02 03:04:05 UTC 2024\n\nversion=1\ncluster.id = abc\n! more\nnode.id:7\n"
    assert parse_properties(data) == {"version": "1", "cluster.id": "abc", "node.id": "7"}
    assert parse_properties(format_properties({"a": "1", "b": "x=y"})) == {"a": "1", "b": "x=y"}
    with pytest.raises(CorruptCheckpoint):
        parse_properties(b"no separator\n")
