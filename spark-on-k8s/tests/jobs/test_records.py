from datetime import UTC, datetime

import pytest
from logfleet_spark.jobs.records import ERROR, SettingError, read_values, rejected

FIELDS = "a INT, b STRING"
SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
NO_JSON = "the value is not JSON"
NO_FIT = f"the value does not fit the fields {FIELDS}"
VALUES = {
    b'{"a": 1, "b": "x"}': None,
    b'{"c": 2}': None,
    b"{}": None,
    b"no": NO_JSON,
    b"null": NO_FIT,
    b'{"a": 1': NO_JSON,
    b"\xff\x00": NO_JSON,
    b"": "the value is empty",
    b" \n": "the value is empty",
    b"[1]": NO_FIT,
    b"3": NO_FIT,
    b'{"a": "x"}': NO_FIT,
    b'{"a": 1.5}': NO_FIT,
}


def records(spark, values):
    at = datetime(2013, 1, 2, 23, 59, tzinfo=UTC)
    rows = [(b"k", value, "t", 0, n, at) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA)


def test_whatever_is_no_event_says_why(spark):
    rows = read_values(records(spark, VALUES), FIELDS).orderBy("offset").collect()
    assert [row[ERROR] for row in rows] == list(VALUES.values())
    assert (rows[0]["a"], rows[0]["b"]) == (1, "x")


def test_a_tombstone_is_a_row_without_fields_and_nothing_is_wrong_with_it(spark):
    (row,) = read_values(records(spark, [None]), FIELDS).collect()
    assert (row["a"], row["b"], row[ERROR]) == (None, None, None)


def test_a_row_that_does_not_meet_a_condition_is_no_event_and_the_first_error_is_told(spark):
    values = [b'{"a": 1}', b'{"a": -1}', b"{}", b"no", None]
    rows = read_values(records(spark, values), FIELDS, require="a > 0").orderBy("offset").collect()
    unmet = "the condition is not met: a > 0"
    assert [row[ERROR] for row in rows] == [None, unmet, unmet, NO_JSON, None]


def test_rejected_records_are_kept_as_they_came_with_the_day_of_their_time(spark):
    read = rejected(read_values(records(spark, [b"{}", b"\xffno"]), FIELDS))
    (row,) = read.collect()
    assert (row["offset"], bytes(row["value"]), row["error"]) == (1, b"\xffno", NO_JSON)
    assert str(row["day"]) == "2013-01-02"
    assert read.columns[:6] == ["key", "value", "topic", "partition", "offset", "timestamp"]


def test_fields_that_are_no_ddl_are_told_in_one_sentence(spark):
    with pytest.raises(SettingError, match=r"--fields 'a IN T,' cannot be read; write \"name TYPE"):
        read_values(records(spark, [b""]), "a IN T,")
