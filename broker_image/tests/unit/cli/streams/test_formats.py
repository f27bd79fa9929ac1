import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.cli.record_text import TextError
from logfleet.cli.streams.formats import Format, JsonWriter, ago, iso_time
from logfleet.records.columns import Columns
from logfleet.records.record import Record

NOW = 1_700_000_000_000
HEADERS = (("a", b"b"), ("c", None), ("a", b"last"))
RECORD = Record(b"k\xff", b"v", NOW + 5, HEADERS, 7)


@pytest.mark.parametrize(
    "text, line",
    [
        (r"%s\n", b"v\n"),
        ("%t[%p]@%o %T %k", b"t[3]@7 1700000000005 k\xff"),
        ("%K %S %h %%", b"2 1 a=b,c=NULL,a=last %"),
        ("100%%s", b"100%s"),
        (r"\xff%%{}", b"\xff%{}"),
        ("", b""),
        ("%k{hex} %k{base64} %k{len}", b"6bff " + b64encode(b"k\xff") + b" 2"),
        ("%s{json} %k{json}", b'"v" {"base64":"a/8="}'),
        ("%T{iso} %T{ago}", b"2023-11-14T22:13:20.005Z 1m"),
        ("%H{a} %H{c} %H{none}", b"last NULL NULL"),
        (r"%s\x7bhex}", b"v{hex}"),
    ],
)
def test_formats_are_kcats_and_show_fields_in_more_ways(text: str, line: bytes) -> None:
    written = Format(text, null=b"NULL", now_ms=lambda: NOW + 90_005)
    assert written.record("t", 3, RECORD) == line


def test_null_stands_for_keys_and_values_that_are_null() -> None:
    empty = Record(None, None, 0)
    assert Format("%k:%s:%K:%S", null=b"~").record("t", 0, empty) == b"~:~:-1:-1"
    assert Format("%k:%s").record("t", 0, empty) == b":"
    assert Format("%k{hex}:%s{json}:%s{len}", null=b"~").record("t", 0, empty) == b"~:null:-1"


@pytest.mark.parametrize(
    "text, words",
    [
        ("%x", "%x: write one of %t"),
        ("a%", "%: write one"),
        ("%s{iso}", r"%s{iso}: write {hex}, {base64}, {json}, {len}, or \x7b for a brace"),
        ("%T{hex}", "%T{hex}: write {iso}, {ago}"),
        ("%p{hex}", "%p{hex}: write nothing in braces"),
        ("%H", "%H: write the header's name, as %H{name}"),
        ("%H{}", "%H: write the header's name"),
        (r"\q", "write"),
    ],
)
def test_an_unknown_field_is_refused(text: str, words: str) -> None:
    with pytest.raises(TextError) as refused:
        Format(text)
    assert words in str(refused.value)


DATA = st.none() | st.binary(max_size=4)


@given(
    st.lists(st.tuples(DATA, DATA), max_size=9),
    st.lists(
        st.sampled_from(
            ["%t", "%p", "%k", "%s", "%K", "%S", "%k{hex}", "%s{json}", "%%", "a", r"\n"]
        )
    ).map("".join),
    st.booleans(),
)
def test_columns_are_written_byte_for_byte_as_records_are(
    rows: list[tuple[bytes | None, bytes | None]], text: str, decodes: bool
) -> None:
    value_text = bytes.upper if decodes else None
    written = Format(text, null=b"~", value_text=value_text)
    assert written.takes_columns
    columns = Columns([key for key, _ in rows], [value for _, value in rows])
    assert written.columns("t", 3, columns) == b"".join(
        written.record("t", 3, Record(key, value, NOW, (), offset))
        for offset, (key, value) in enumerate(rows)
    )


@pytest.mark.parametrize("text", ["%s %o", "%T{iso}", "%h", "%H{a}"])
def test_what_shows_more_than_keys_and_values_takes_no_columns(text: str) -> None:
    assert not Format(text).takes_columns


def test_json_may_hold_a_document_instead_of_the_value() -> None:
    writer = JsonWriter(lambda data: [data.decode()])
    assert not writer.takes_columns
    assert json.loads(writer.record("t", 3, RECORD))["value"] == ["v"]
    assert json.loads(writer.record("t", 3, Record(None, None, 0)))["value"] is None
    assert json.loads(JsonWriter().record("t", 3, RECORD))["value"] == "v"


@pytest.mark.parametrize(
    "time_ms, text",
    [(0, "1970-01-01T00:00:00.000Z"), (-1, "-1"), (2**62, str(2**62)), (-(2**63), str(-(2**63)))],
)
def test_a_time_beyond_the_calendar_is_a_number(time_ms: int, text: str) -> None:
    assert iso_time(time_ms) == text


@pytest.mark.parametrize(
    "milliseconds, text",
    [
        (0, "0ms"),
        (999, "999ms"),
        (59_999, "59s"),
        (60_000, "1m"),
        (7_200_000, "2h"),
        (900_000_000, "10d"),
        (-3000, "-3s"),
    ],
)
def test_an_age_is_in_its_largest_unit(milliseconds: int, text: str) -> None:
    assert ago(milliseconds) == text
