import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.cli.record_text import (
    Draft,
    LineCutter,
    TextError,
    draft_reader,
    read_json,
    unescape,
    write_json,
)
from logfleet.records.record import Record


@pytest.mark.parametrize(
    "text, data",
    [
        ("a:b", b"a:b"),
        (r"\t\n\r\0\\", b"\t\n\r\0\\"),
        (r"\x00\x7f\x80\xff", b"\x00\x7f\x80\xff"),
        (r"ü\x41", "üA".encode()),
        ("\udcff", b"\xff"),  # what no text of the shell's is
    ],
)
def test_escapes_name_bytes(text: str, data: bytes) -> None:
    assert unescape(text) == data


@pytest.mark.parametrize("text", ["\\", r"\q", r"\x1", r"\xgg", "\ud800"])
def test_what_is_no_escape_is_refused(text: str) -> None:
    with pytest.raises(TextError):
        unescape(text)


@given(
    st.binary(max_size=60).map(lambda data: data.replace(b"c", b"ab")),
    st.sampled_from([b"\n", b"ab", b"aab"]),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_lines_do_not_depend_on_how_the_bytes_arrive(
    data: bytes, delimiter: bytes, cuts: list[int]
) -> None:
    cutter = LineCutter(delimiter, 1000)
    edges = [0, *sorted(cuts), len(data)]
    lines = []
    for start, end in itertools.pairwise(edges):
        lines += cutter.feed(data[start:end])
    lines += cutter.end()
    whole = data.split(delimiter)
    assert lines == (whole if whole[-1] else whole[:-1])


def test_a_line_has_a_limit() -> None:
    cutter = LineCutter(b"\n", 3)
    assert cutter.feed(b"abc\nab") == [b"abc"]
    with pytest.raises(TextError, match="more than 3 bytes"):
        cutter.feed(b"cd")


@pytest.mark.parametrize(
    "line, separator, null, draft",
    [
        (b"a:b", None, None, Draft(b"all", b"a:b")),
        (b"a:b:c", b":", None, Draft(b"a", b"b:c")),
        (b":", b":", None, Draft(b"", b"")),
        (b":", b":", b"", Draft(None, None)),
        (b"a:NULL", b":", b"NULL", Draft(b"a", None)),
        (b"", None, b"", Draft(b"all", None)),
    ],
)
def test_what_a_line_means(
    line: bytes, separator: bytes | None, null: bytes | None, draft: Draft
) -> None:
    assert draft_reader(separator=separator, null=null, key=b"all")(line) == draft


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(TextError, match="has no ':'"):
        draft_reader(separator=b":")(b"value")


@pytest.mark.parametrize(
    "line, words",
    [
        (b"", "is no record in JSON"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `value`"),
        (b'{"value": 1}', "got `int` - at `$.value`"),
        (b'{"value": "", "keys": ""}', "unknown field `keys`"),
        (b'{"value": {"base64": "?"}}', "base64: "),
        (b'{"value": "\xff"}', "is no record in JSON"),
        (b'{"value": "", "timestamp": %d}' % 2**63, "- at `$.timestamp`"),
        (b'{"value": "", "timestamp": %d}' % 10**30, "- at `$.timestamp`"),
        (b'{"value": "", "timestamp": -2}', "- at `$.timestamp`"),
    ],
)
def test_what_is_no_record_in_json_is_refused(line: bytes, words: str) -> None:
    with pytest.raises(TextError) as refused:
        read_json(line)
    assert words in str(refused.value)


@pytest.mark.parametrize("timestamp", [-1, 0, 2**63 - 1])
def test_a_timestamp_in_json_is_whatever_a_record_can_have(timestamp: int) -> None:
    draft = read_json(b'{"value": "", "timestamp": %d}' % timestamp)
    assert draft.timestamp_ms == timestamp


DATA = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)


@given(
    DATA, DATA, st.lists(st.tuples(st.text(max_size=4), DATA), max_size=3), st.integers(0, 2**60)
)
def test_what_is_written_in_json_is_read_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], time: int
) -> None:
    line = write_json("t", 3, Record(key, value, time, tuple(headers), 7))
    assert line.count(b"\n") == 1
    assert read_json(line) == Draft(key, value, tuple(headers), 3, time)


def test_json_is_readable() -> None:
    record = Record(b"k", b"\xff", 17, (("h", b"x"), ("n", None)), 7)
    assert json.loads(write_json("t", 3, record)) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 17,
        "headers": [["h", "x"], ["n", None]],
        "key": "k",
        "value": {"base64": "/w=="},
    }
