import re

import pytest
from logfleet.cli.streams.pretty import PrettyWriter
from logfleet.records.record import Record
from logfleet.records.where import json_document

NOW = 1_700_000_000_000


def written(record: Record, *, has_colours: bool = False) -> str:
    writer = PrettyWriter(has_colours=has_colours, document=json_document, now_ms=lambda: NOW)
    assert not writer.takes_columns
    return writer.record("orders", 3, record).decode(errors="surrogateescape")


def test_a_record_shows_its_place_time_key_headers_and_value_in_json() -> None:
    value = b'{"dest":"LAX","tags":["a",1,null]}'
    record = Record(b"AA-17", value, NOW - 5000, (("trace", b"t1"), ("none", None)), 12)
    assert written(record) == (
        "orders-3 @ 12  2023-11-14T22:13:15.000Z (5s)  AA-17\n"
        "  trace: t1\n"
        "  none: null\n"
        "  {\n"
        '    "dest": "LAX",\n'
        '    "tags": [\n'
        "      a\n".replace("      a\n", '      "a",\n      1,\n      null\n')
        + "    ]\n"
        "  }\n"
        "\n"
    )


@pytest.mark.parametrize(
    "value, line",
    [
        (b"plain text", "  plain text"),
        (b"42", "  42"),
        (None, "  null"),
        (b"\xff\x00", "  ff00"),
        (b"a\nb", "  a\n  b"),
    ],
)
def test_what_is_no_json_is_text_or_hex(value: bytes | None, line: str) -> None:
    first, rest = written(Record(None, value, NOW)).split("\n", 1)
    assert first.endswith("  no key")
    assert rest == line + "\n\n"


def test_colours_change_no_text() -> None:
    record = Record(b"k", b'{"a\\"b": "c: 1", "n": -1.5e3, "t": [true, null]}', NOW, (("h", b"x"),))
    coloured = written(record, has_colours=True)
    assert re.sub(r"\x1b\[[0-9]*m", "", coloured) == written(record)
    assert '\x1b[36m"a\\"b"\x1b[0m: \x1b[32m"c: 1"\x1b[0m' in coloured
    assert "\x1b[35m-1500.0\x1b[0m" in coloured
    assert "\x1b[35mtrue\x1b[0m" in coloured


@pytest.mark.parametrize("has_colours", [False, True])
def test_a_record_does_not_steer_the_terminal(has_colours: bool) -> None:
    evil = "\x1b]0;owned\x07\x9b2J"
    record = Record(evil.encode(), b'{"a": "%s"}' % evil.encode(), NOW, ((evil, evil.encode()),))
    shown = re.sub(r"\x1b\[[0-9]*m", "", written(record, has_colours=has_colours))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert shown.count("owned") == 4
