"""No record of any shape ends a job, and each is either counted, or kept with what is wrong with it.

The values are odd for a field of some type. A model that uses only Python's json gives the expected
result. There are 100 values per type, 10,000 with FULL=1.
"""

import json
import math
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from logfleet_spark.jobs import dlq_router, table_to_topic, topic_to_table, window_counts

from e2e.harness.spark_topics import NumberedTopic, read_table

COUNT = 10_000 if os.environ.get("FULL") else 100
pytestmark = pytest.mark.timeout(120 + COUNT // 10)
TYPES: Mapping[str, str] = {
    "f_string": "STRING",
    "f_int": "INT",
    "f_bigint": "BIGINT",
    "f_double": "DOUBLE",
    "f_decimal": "DECIMAL(20, 4)",
    "f_boolean": "BOOLEAN",
    "f_timestamp": "TIMESTAMP",
    "f_date": "DATE",
    "f_array": "ARRAY<INT>",
    "f_struct": "STRUCT<a: INT, t: TIMESTAMP, l: ARRAY<DATE>>",
    "f_map": "MAP<STRING, TIMESTAMP>",
    "f_binary": "BINARY",
}
FIELDS = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
DEPTH_MAX = 1500
"""Jackson reads 1000 levels."""
NUMBERS = [
    *(b"0", b"-0", b"-0.0", b"1", b"1.0", b"1.5", b"1e2", b"1E-2", b"01", b"+1", b".5", b"0x1F"),
    *(b"1e400", b"-1e400", b"1e-400", b"1e999999999", b"1e-999999999", b"NaN", b"Infinity"),
    *(
        str(sign * 2**power + more).encode()
        for sign in (1, -1)
        for power in (31, 63, 64)
        for more in (-1, 0, 1)
    ),
    *(b"9" * 400, b"9" * 1500, b"0." + b"9" * 400, b"-Infinity", b"-NaN", b"1_000"),
    # seconds, milliseconds, microseconds and nanoseconds since 1970, and what overflows to some time
    *(b"1356998400", b"1356998400000", b"1356998400000000", b"1356998400000000000"),
    *(b"18446744073709", b"18448101072109", b"-62135596801", b"253402300800"),
]
TEXTS = [
    *(
        b"",
        b"x",
        b"NaN",
        b"Infinity",
        b"1",
        b"1.5",
        b"true",
        b" 1 ",
        b"AQ==",
        b"A",
        b"====",
        b"null",
    ),
    *(b"2013-01-01T05:00:00Z", b"2013-01-01 05:00:00.123456789+01:00", b"2013-01-01", b"2013"),
    *(
        b"+44971-01-01T00:00:00Z",
        b"-5000-01-01",
        b"-5000-01-01T00:00:00",
        b"0000-01-01",
        b"0001-01-01",
    ),
    *(
        b"9999-12-31T23:59:59.999999Z",
        b"2013-02-30",
        b"2013-01-01T24:00:00",
        b"2013-01-01T05:00:00+25:00",
    ),
    *(
        b"now",
        b"epoch",
        b"12:00",
        b"T12:00",
        b"294247-01-10T04:00:54.775807Z",
        b"20130101",
        b"1582-10-10",
    ),
    *(
        b"\\u0000",
        b"\\ud800",
        b"\\udc00\\ud800",
        b"\\ud83d\\ude00",
        b"\\x",
        b"\\u12",
        b"\\",
        b"\x00",
        b"\n",
    ),
    # broken UTF-8: no UTF-8, overlong, a surrogate, beyond Unicode, cut short
    *(b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xef\xbb\xbf"),
    "é漢字😀\u202e\ufeff\u2028".encode(),
]
OTHERS = [
    *(
        b"null",
        b"true",
        b"false",
        b"True",
        b"nul",
        b"[]",
        b"[1]",
        b"[1, null, 2147483648]",
        b"[1,]",
        b"[,]",
    ),
    *(
        b"{}",
        b'{"a": 1}',
        b'{"a": "x"}',
        b'{"a": 1, "a": 2}',
        b'{"t": 1356998400000}',
        b'{"x": "2013-01-01"}',
    ),
    *(
        b'{"l": ["2013-01-01", "+12013-01-01"]}',
        b'{"x": 1, "x": 2}',
        b'{"": 1}',
        b"{1: 2}",
        b"'x'",
        b"//x",
        b"",
    ),
]


def _number(random: Random) -> bytes:
    if random.random() < 0.5:
        return random.choice(NUMBERS)
    if random.random() < 0.5:
        return str(random.getrandbits(random.randint(1, 70)) * random.choice([1, -1])).encode()
    return repr(random.uniform(-1, 1) * 10.0 ** random.randint(-330, 300)).encode()


def _text(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.7:
        return b'"' + random.choice(TEXTS) + b'"'
    if kind < 0.8:
        return b'"' + random.randbytes(random.randint(0, 12)) + b'"'
    if kind < 0.9:
        return b'"' + b64encode(random.randbytes(random.randint(0, 12))) + b'"'
    if kind < 0.902:
        return b'"' + b"x" * random.randint(10_000, 200_000) + b'"'
    day = f"{random.randint(-20_000, 300_000)}-{random.randint(0, 14)}-{random.randint(0, 33)}"
    return f'"{day}T{random.randint(0, 25)}:{random.randint(0, 61)}"'.encode()


def _nested(random: Random, depth: int) -> bytes:
    kind = random.random()
    if depth > 3 or kind < 0.6:
        return _any(random, depth + 1)
    parts = [_any(random, depth + 1) for _ in range(random.randint(0, 4))]
    if kind < 0.8:
        return b"[" + b", ".join(parts) + b"]"
    names = [b'"' + random.choice([b"a", b"t", b"l", b"x"]) + b'": ' for _ in parts]
    return b"{" + b", ".join(map(b"".join, zip(names, parts, strict=True))) + b"}"


def _any(random: Random, depth: int = 0) -> bytes:
    kind = random.random()
    if kind < 0.35:
        return _number(random)
    if kind < 0.75:
        return _text(random)
    if kind < 0.9 or depth > 3:
        return random.choice(OTHERS)
    if kind < 0.905:
        deep = random.randint(2, DEPTH_MAX)
        return b"[" * deep + b"]" * (deep - random.randint(0, 1))
    return _nested(random, depth)


FITTING: Mapping[str, list[bytes]] = {
    "f_string": [b'"x"', b'"\\u00e9"', b'""', b"[1, {}]"],
    "f_int": [b"0", b"-7", b"2147483647"],
    "f_bigint": [b"0", b"1356998400000", b"-9223372036854775808", b"9223372036854775807"],
    "f_double": [b"1.5", b"-0.0", b"1e308", b"NaN", b"7"],
    "f_decimal": [b"1.5", b"9999999999999999.9999", b'"2.25"', b"1e3"],
    "f_boolean": [b"true", b"false"],
    "f_timestamp": [
        b'"2013-01-01T05:00:00Z"',
        b"1356998400",
        b'"1850-01-01T00:00:00Z"',
        b'"2113-01-01"',
    ],
    "f_date": [b'"2013-01-01"', b'"0001-01-02"', b'"9999-12-30"'],
    "f_array": [b"[]", b"[1, null]", b"[2147483647, -1]"],
    "f_struct": [b"{}", b'{"a": 1, "t": "2013-01-01T05:00:00Z", "l": ["2013-01-01"]}'],
    "f_map": [b"{}", b'{"x": "2013-01-01T05:00:00Z", "y": null}', b'{"x": 1, "x": 2}'],
    "f_binary": [b'"AQ=="', b'""', b'"/+8="'],
}


def values(name: str, count: int) -> Iterator[bytes | None]:
    """Values with one field of TYPES, always the same for a name; None for a tombstone."""
    random = Random(name)
    for _ in range(count):
        field = f'"{name}": '.encode()
        one = random.choice(FITTING[name]) if random.random() < 0.4 else _any(random)
        value = b"{" + field + one + b"}"
        kind = random.random()
        if kind < 0.7:
            yield value
        elif kind < 0.75:
            yield b"{" + field + _any(random) + b", " + field + _any(random) + b"}"
        elif kind < 0.8:
            yield value + random.choice(
                [b" ", b"\n", b"x", b"\x00", b"}", b"]", b", ", b',"x":1', b"} x"]
            )
        elif kind < 0.85:
            yield value + random.choice([b"", b"\n", b", ", b"], ["]) + value
        elif kind < 0.88:
            yield random.choice([b"\xef\xbb\xbf", b"\x00", b" ", b"[", b"\xff\xfe"]) + value
        elif kind < 0.92:
            yield value[: random.randint(0, len(value))]
        elif kind < 0.97:
            place = random.randrange(len(value))
            yield value[:place] + random.randbytes(1) + value[place + 1 :]
        elif kind < 0.99:
            yield random.randbytes(random.randint(0, 20))
        else:
            yield None


WRONG = object()
"""The value is no event."""
OPEN = object()
"""The model does not say: Spark reads more than JSON (single quotes), and many texts as times and numbers."""


def _of(kind: str, value: Any) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case _ if value is None:
            return None
        case "INT" | "BIGINT":
            bits = 31 if kind == "INT" else 63
            return value if is_whole and -(2**bits) <= value < 2**bits else WRONG
        case "BOOLEAN":
            return value if isinstance(value, bool) else WRONG
        case "DOUBLE" if is_whole or isinstance(value, float):
            try:
                return float(value)
            except OverflowError:
                return OPEN
        case "STRING" if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
    return OPEN


def expected(name: str, value: bytes) -> Any:
    """What the field of a value is read as, WRONG if the value is no event, or OPEN."""
    try:
        text = value.decode()
        read = json.loads(text)
    except (ValueError, RecursionError):
        return OPEN
    if not isinstance(read, dict):
        return WRONG
    # of a name that is there twice, Spark looks at both values
    if text.count(f'"{name}"') > 1:
        return OPEN
    return _of(TYPES[name], read.get(name))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


@pytest.fixture(scope="module")
def sent(broker):
    """(topic, the values by their place)"""
    topic = NumberedTopic(broker.bootstrap, partitions=len(TYPES))
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.kbytes": 1_000_000}
    )
    places = {}
    for partition, name in enumerate(TYPES):
        for offset, value in enumerate(values(name, COUNT)):
            producer.produce(topic.name, value, name, partition=partition)
            places[partition, offset] = value
        assert producer.flush(120) == 0
    return topic, places


@pytest.fixture
def basic(sent, tmp_path):
    topic, _ = sent
    return [
        "--bootstrap-servers",
        topic.bootstrap,
        "--fields",
        FIELDS,
        "--checkpoint",
        str(tmp_path / "c"),
    ]


def rejected(folder):
    """Number of records by what is wrong with them, and their places."""
    rows = read_table(Path(folder))
    places = set(zip(rows["partition"], rows["offset"], strict=True))
    assert len(places) == len(rows)
    return Counter(rows["error"]), places


def test_a_table_has_each_record_that_is_an_event_and_says_of_the_others_why(
    job, sent, basic, tmp_path
):
    topic, places = sent
    out = str(tmp_path / "t")
    arguments = [*basic, "--topic", topic.name, "--format", "parquet", "--output", out]
    topic_to_table.run(job, topic_to_table.parse_settings([*arguments, "--day-of", "f_timestamp"]))
    errors, wrong = rejected(f"{out}-rejected")
    # pandas makes a float of a number beside nulls
    rows = pq.read_table(out).to_pylist()
    read = {(row["partition"], row["offset"]): row for row in rows}
    assert len(read) == len(rows) == len(pd.read_parquet(out))
    assert read.keys() | wrong == places.keys()
    assert not read.keys() & wrong
    assert len(errors) > 5, errors
    names = list(TYPES)
    known = 0
    for place, value in places.items():
        if value is None:
            assert place in read
            continue
        name = names[place[0]]
        want = expected(name, value)
        if want is OPEN:
            continue
        known += 1
        if want is WRONG:
            assert place in wrong, value
            continue
        assert same(read[place][name], want), (value, read[place][name], want)
    assert known > COUNT * 2
    sent_on = NumberedTopic(topic.bootstrap)
    arguments = ["--bootstrap-servers", topic.bootstrap, "--topic", sent_on.name]
    table_to_topic.run(
        job, table_to_topic.parse_settings([*arguments, "--input", out, "--format", "parquet"])
    )
    assert sent_on.batch(job.spark).count() == len(rows)


AGGREGATES = """count(*) AS n, sum(f_int) AS a, sum(f_bigint * f_int) AS b, avg(f_double) AS c, sum(f_decimal) AS d, max(f_timestamp) AS e,
    min(f_date) AS f, max(f_struct) AS g, count(f_map['x']) AS h, sum(CAST(f_string AS INT) / f_int) AS i, max(f_array[1]) AS j,
    sum(f_bigint) AS k, count_if(f_boolean) AS l, max(f_binary) AS m, max(date_add(f_date, f_int)) AS o,
    max(try_add(timestamp_millis(f_bigint), INTERVAL '0' SECOND)) AS p"""


def test_counts_add_up_to_all_records_but_the_rejected_ones(job, sent, basic, tmp_path):
    topic, places = sent
    out = str(tmp_path / "w")
    groups = "f_string, f_boolean, f_date, f_array, f_struct, f_binary, f_double, f_map['x'] AS x"
    arguments = [
        *basic,
        "--topic",
        topic.name,
        "--sink",
        "delta",
        "--output",
        out,
        "--aggregate",
        AGGREGATES,
    ]
    # a timestamp is counted where there is none that can be
    arguments += [
        "--event-time",
        "coalesce(f_timestamp, timestamp)",
        "--window",
        "36500 days",
    ]
    window_counts.run(
        job,
        window_counts.parse_settings(
            [*arguments, "--group-by", groups, "--watermark", "73000 days"]
        ),
    )
    _, wrong = rejected(f"{out}-rejected")
    rows = read_table(Path(out))
    assert rows["n"].sum() + len(wrong) == len(places)


def test_each_record_is_routed_to_one_of_two_topics_and_replayed_to_one(job, sent, basic):
    topic, places = sent
    good, dead, mended = (NumberedTopic(topic.bootstrap) for _ in range(3))

    def run(*more):
        found = dlq_router.parse_settings(
            [*basic[:-1], basic[-1] + more[0], "--dlq-topic", dead.name, *more[1:]]
        )
        job.run(dlq_router.start(job, found))

    run(
        "route",
        "--topic",
        topic.name,
        "--output-topic",
        good.name,
        "--require",
        "f_int IS NULL OR 100 / f_int > 1",
    )
    sound, letters = (each.batch(job.spark).count() for each in (good, dead))
    assert (sound + letters, sound > 0, letters > 0) == (len(places), True, True)
    run(
        "replay",
        "--replay",
        "--replay-topic",
        mended.name,
        "--mend",
        "substr(value, 1, CAST(length(value) - 1 AS INT))",
    )
    back, again = (each.batch(job.spark).count() for each in (mended, dead))
    assert back + again - letters == letters
    assert back > 0
