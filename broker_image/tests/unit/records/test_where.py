import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.records.record import Record
from logfleet.records.where import TEXT_MAX, Where, WhereError

FLIGHT = (
    b'{"dest": "LAX", "delay": 42, "tags": ["late", "full"], "crew": {"size": 5}, "gate": null}'
)


def record(value=FLIGHT, key=b"AA-17", headers=(("trace", b"t1"), ("trace", b"t2"))):
    return Record(key, value, 1_700_000_000_000, headers, 12)


def holds(text, **fields):
    return Where(text).holds(record(**fields), 3)


@pytest.mark.parametrize(
    "text",
    [
        'value.dest == "LAX" and value.delay > 30 and "17" in key',
        "value['dest'] != 'SFO'",
        'value.crew["size"] == 5',
        "value.tags[0] == 'late' and value.tags[-1] == 'full'",
        "value.tags == ['late', 'full']",
        '"full" in value.tags and "old" not in value.tags',
        "value.dest in ('LAX', 'SFO')",
        "'dest' in value.crew or 'size' in value.crew",
        "30 < value.delay <= 42",
        "value.gate is None and value.nothing is None",
        "value.dest is not None",
        "not value.gate",
        "value.delay > -1.5",
        "headers.trace == 't2' and headers['trace'] == 't2'",
        "'trace' in headers and 'other' not in headers",
        "timestamp >= 1700000000000 and offset == 12 and partition == 3",
        "key == 'AA-17'",
        '"LAX" in value',
        "value.dest",
        "  True  ",
    ],
)
def test_a_condition_holds(text):
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "value.dest > 30",
        "value.nothing > 0",
        "value.delay in 5",
        "value.delay in value.dest",
        "value.dest.first == 'L'",
        "value.tags[2] == 'late'",
        "value.tags.first is not None",
        "30 < value.delay < 40",
        "0 < value.dest < 40",
        "value.dest == 'SFO' or value.delay == 1",
        "partition == 2",
        "value.gate",
    ],
)
def test_a_condition_does_not_hold(text):
    assert not holds(text)


def test_a_bare_value_is_its_text_and_a_number_beside_a_number():
    assert holds('value == "31"', value=b"31")
    assert holds("value > 30", value=b"31")
    assert holds("-40 < value", value=b"-31")
    assert not holds("value > 30", value=b"thirty-one")
    assert not holds("value > 30", value=b'"31"')


def test_null_keys_and_values_are_none():
    assert holds("value is None and key is None", value=None, key=None)
    assert not holds("value.dest == 'LAX'", value=None)
    assert not holds("'x' in key", key=None)
    assert holds("key < 5", key=b"4")
    assert holds("headers.none is None and 'none' in headers", headers=(("none", None),))


def test_bytes_that_are_no_text_match_themselves_only():
    assert holds('key != "A"', key=b"A\xff")
    assert holds('"A" in key', key=b"A\xff")
    assert not holds("value.dest == 'LAX'", value=b'{"dest": "LAX"')
    assert not holds("value.dest == 'LAX'", value=b"[" * 100_000)
    assert not holds("value.dest == 'LAX'", value=b'{"dest": "\xff"}')


def test_documents_of_another_format_are_read_once():
    read = []

    def upper(data):
        read.append(data)
        return {"text": data.decode().upper()}

    where = Where("value.text == 'A' and value.text != 'B' and key.text == 'K'", document=upper)
    assert where.holds(Record(b"k", b"a", 0))
    assert read == [b"a", b"k"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "an empty condition"),
        ("  ", "an empty condition"),
        ("value.dest ==", "column 14: invalid syntax"),
        ("value.delay + 1 > 3", "column 1, 'value.delay + 1': write names, fields"),
        ("value.dest.upper() == 'LAX'", "column 1, 'value.dest.upper()': write names"),
        ("key == 'é' and open('x')", "column 16, \"open('x')\": write names"),
        ("keys == 'a'", "column 1, 'keys': there is no name keys; key, value, headers"),
        ("value[key] == 1", "column 7, 'key': write names"),
        ("value[1.5] == 1", "column 1, 'value[1.5]': an index is a text or a whole number"),
        ("value[True] == 1", "column 1, 'value[True]': an index is a text"),
        ("value[0:2] == 1", "column 7, '0:2': write names"),
        ("offset.real == 1", "column 1, 'offset.real': only key, value, headers have fields"),
        ("'a'.b == 1", "column 1, \"'a'.b\": only key, value, headers have fields"),
        ("f'{key}' == 'a'", "column 1, \"f'{key}'\": write names"),
        ("b'a' in key", "column 1, \"b'a'\": write names"),
        ("key if key else value", "column 1, 'key if key else value': write names"),
        ("(a := key)", "column 2, 'a := key': write names"),
        ("lambda: 1", "column 1, 'lambda: 1': write names"),
        ("[key] == 1", "column 2, 'key': write names"),
        ("-key > 1", "column 1, '-key': write names"),
        ("key == 1; key", "column 9: invalid syntax"),
        ("key\0", "cannot"),
        ("k" * (TEXT_MAX + 1), "a condition of 1001 characters, the limit is 1000"),
        ("[" * 400 + "]" * 400, "too many nested parentheses"),
    ],
)
def test_a_malformed_condition_names_its_place(text, message):
    with pytest.raises(WhereError) as caught:
        Where(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["not " * 249 + "key", "value" + ".a" * 497, "1 and(" * 142 + "1" + ")" * 142]
)
def test_the_most_nested_condition_is_evaluated(text):
    assert Where(text).holds(record()) in {True, False}


@given(st.text(alphabet="keyvalu.[]()'\"01 andornti=<>!-:{},", max_size=60))
def test_any_text_is_a_condition_or_a_named_error(text):
    try:
        where = Where(text)
    except WhereError:
        return
    assert where.holds(record(), 1) in {True, False}
