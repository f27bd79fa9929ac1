import re

import pytest
from logfleet.config.keys import ConfigError
from logfleet.config.server_properties.text import parse_properties, read_properties


def test_comments_blank_lines_and_all_separators_are_understood():
    text = "# a comment\n! another\n\n  node.id = 3\nbroker.rack:a\nlog.dirs /data/a,/data/b\n"
    assert parse_properties(text) == {
        "node.id": "3",
        "broker.rack": "a",
        "log.dirs": "/data/a,/data/b",
    }


def test_a_backslash_continues_the_line_and_the_next_indent_is_dropped():
    assert parse_properties("listeners=A://h:1,\\\n   B://h:2\n") == {
        "listeners": "A://h:1,B://h:2"
    }


def test_a_comment_sign_in_a_continued_line_is_text():
    assert parse_properties("a=1\\\n#2") == {"a": "1#2"}


def test_an_even_number_of_backslashes_ends_the_line():
    assert parse_properties("a=1\\\\\nb=2") == {"a": "1\\", "b": "2"}


def test_escapes_are_resolved_in_keys_and_values():
    assert parse_properties(r"a\=b=\t\u0041\:" + "\n") == {"a=b": "\tA:"}


def test_a_key_alone_has_the_empty_value_and_the_last_of_two_wins():
    assert parse_properties("a\nb=1\nb=2") == {"a": "", "b": "2"}


def test_the_last_line_may_end_in_a_backslash():
    assert parse_properties("a=1\\") == {"a": "1"}


def test_a_value_may_contain_the_separator():
    assert parse_properties("a==b:c") == {"a": "=b:c"}


def test_a_file_is_read_as_utf_8_or_else_as_latin_1():
    assert read_properties("# Größe 水\nbroker.rack=Köln".encode()) == {"broker.rack": "Köln"}
    assert read_properties("# Größe\nbroker.rack=Köln".encode("latin-1")) == {"broker.rack": "Köln"}
    assert read_properties("# 中文\nnode.id=1".encode("gbk")) == {"node.id": "1"}


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert read_properties("broker.rack=Köln".encode("utf-8-sig")) == {"broker.rack": "Köln"}


@pytest.mark.parametrize(
    "sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]
)
def test_only_javas_line_ends_end_a_line(sign):
    assert parse_properties(f"# keep for{sign}log.retention.hours=1 day\nnode.id=1") == {
        "node.id": "1"
    }
    assert parse_properties(f"a=1{sign}b=2\rc=3\r\nd=4\ne=5") == {
        "a": f"1{sign}b=2",
        "c": "3",
        "d": "4",
        "e": "5",
    }


def test_a_backslash_alone_and_an_empty_line_say_nothing():
    assert parse_properties("\\\n\na=1\n\\\n# a comment\nb=2") == {"a": "1", "b": "2"}


def test_a_character_of_two_escapes_is_one():
    assert parse_properties("a=\\ud83d\\ude00") == {"a": "😀"}


def test_trailing_blanks_are_dropped():
    assert parse_properties("a=1  \r\n") == {"a": "1"}


@pytest.mark.parametrize("digits", ["00zz", "12", "+123", "1_23", ""])
def test_a_malformed_unicode_escape_is_refused_with_the_line(digits):
    with pytest.raises(ConfigError, match=re.escape(f"a=\\u{digits}")):
        parse_properties(f"a=\\u{digits}")
