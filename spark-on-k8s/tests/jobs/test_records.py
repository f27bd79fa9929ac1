from datetime import UTC, date, datetime

import pandas as pd
import pyarrow.parquet as pq
import pytest
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.records import ERROR, read_values, rejected

FIELDS = "a INT, b STRING"
SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
EMPTY = "the value is empty"
NO_JSON = "the value is not JSON"
NO_FIT = f"the value does not fit the fields {FIELDS}"
GOES_ON = "the value goes on after its JSON object"
VALUES = {
    b'{"a": 1, "b": "x"}': None,
    b'{"c": 2}': None,
    b"{}": None,
    b' \n{"a": 1} \r\n\t': None,
    b'{"_corrupt": 1, "event": 2}': None,
    b'{"c": NaN}': None,
    b"{'a': 1}": None,
    b"no": NO_JSON,
    b"null": NO_FIT,
    b'{"a": 1': NO_JSON,
    b"\xff\x00": NO_JSON,
    b"": EMPTY,
    b" \n": EMPTY,
    b"[1]": NO_FIT,
    b'[{"a": 1}]': NO_FIT,
    b"3": NO_FIT,
    b'{"a": "x"}': NO_FIT,
    b'{"a": 1.5}': NO_FIT,
    b'{"a": 1e400}': NO_FIT,
    b'{"a": 1}{"a": 2}': GOES_ON,
    b'{"a": 1}\n{"a": 2}\n': GOES_ON,
    b'{"a": 1} trailing': GOES_ON,
    b'{"a": 1}, {"a": 2}': GOES_ON,
    b'{"a": 1}, "c": 3': GOES_ON,
    b'{"a": 1}, "event": {"a": 2}': GOES_ON,
    b'{"a": 1}}': GOES_ON,
    b'{"a": 1}} trailing': GOES_ON,
    b'{"a": 1}]': GOES_ON,
    b'{"a": 1}], [2': GOES_ON,
    b'{"a": 1}\x00': GOES_ON,
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


def test_what_cannot_be_computed_for_a_row_is_a_condition_that_is_not_met(spark):
    values = [b'{"a": 2}', b'{"a": 0}', b'{"a": 1, "b": "x"}']
    rows = read_values(
        records(spark, values), FIELDS, "10 / a > 1 AND CAST(nvl(b, '1') AS INT) = 1"
    )
    unmet = [row[ERROR] is not None for row in rows.orderBy("offset").collect()]
    assert unmet == [False, True, True]


def test_names_of_fields_and_of_the_record_live_apart(spark):
    fields = (
        "Offset STRING, topic INT, value STRING, `service.name` STRING, `a``b` INT, _corrupt INT"
    )
    value = (
        b'{"Offset": "o", "topic": 7, "value": "v", "service.name": "s", "a`b": 2, "_corrupt": 3}'
    )
    found = read_values(records(spark, [value]), fields, "`service.name` = 's' AND topic = 7")
    names = ["key", "partition", "timestamp", "Offset", "topic", "value", "service.name", "a`b"]
    assert found.columns == [*names, "_corrupt", "_error", "_record"]
    (row,) = found.selectExpr("*", "_record.offset AS place", "_record.topic AS source").collect()
    assert row[ERROR] is None
    assert [row[name] for name in (*names[3:], "_corrupt")] == ["o", 7, "v", "s", 2, 3]
    assert (row["place"], row["source"], bytes(row["_record"]["value"])) == (0, "t", value)


TIMES = "t TIMESTAMP, d DATE, l ARRAY<TIMESTAMP>, m MAP<STRING, DATE>, s STRUCT<n: TIMESTAMP_NTZ, i: BIGINT>"
STRANGE = {
    b'{"t": "2013-01-01T00:00:00Z", "d": "2013-01-01", "l": [null, 5], "m": {"x": null}, "s": {}}': None,
    b'{"t": 1356998400}': None,
    b'{"t": "0001-01-02", "d": "9999-12-30", "s": {"i": 1356998400000}}': None,
    b'{"t": 1356998400000}': "t",
    b'{"t": 1356998400000000}': "t",
    b'{"t": 18446744073709}': "t",
    b'{"t": "2013-01-01T00:00:00.008Z", "s": {"i": 18446744073709}}': None,
    b'{"t": -62135596800}': "t",
    b'{"t": "+44971-01-01T00:00:00"}': "t",
    b'{"d": "-5000-01-01"}': "d",
    b'{"l": [5, 1356998400000]}': "l",
    b'{"l": [18446744073709]}': "l",
    b'{"m": {"x": "2013-01-01", "y": "+12013-01-01"}}': "m",
    b'{"s": {"n": "+12013-01-01T00:00:00"}}': "s",
}
"""Values and the field whose time other programs could not express. 18446744073709 seconds overflow to 1970 in Spark."""


def test_times_that_other_programs_cannot_express_are_rejected_and_the_rest_can_be_read(
    spark, tmp_path
):
    events = read_values(records(spark, STRANGE), TIMES)
    found = [row[ERROR] for row in events.orderBy("offset").select(ERROR).collect()]
    wrong = "a time in {} is outside the years 1 to 9999"
    assert found == [name and wrong.format(name) for name in STRANGE.values()]
    good = events.where("_error IS NULL").drop(ERROR, "_record").orderBy("offset").coalesce(1)
    out = str(tmp_path / "out")
    good.write.parquet(out)
    file = next((tmp_path / "out").glob("*.parquet"))
    assert str(pq.read_schema(file).field("t").type) == "timestamp[us, tz=UTC]"
    read = pd.read_parquet(out)
    assert str(read["t"].iloc[2]) == "0001-01-02 00:00:00+00:00"
    assert read["d"].iloc[2] == date(9999, 12, 30)
    assert good.collect()[2]["d"] == date(9999, 12, 30)


def test_fields_that_are_no_ddl_are_told_in_one_sentence(spark):
    with pytest.raises(SettingError, match=r"--fields 'a IN T,' cannot be read; write \"name TYPE"):
        read_values(records(spark, [b""]), "a IN T,")


def test_a_record_whose_own_time_other_programs_cannot_express_is_rejected_without_it(spark):
    strange = spark.sql("""SELECT CAST('k' AS BINARY) AS key, CAST('{}' AS BINARY) AS value, 't' AS topic, 0 AS partition, 0L AS offset,
        timestamp_millis(9000000000000000) AS timestamp""")
    for fields in ("", FIELDS):
        read = rejected(read_values(strange, fields))
        (row,) = read.collect()
        said = "the time of the record is outside the years 1 to 9999"
        assert (row["timestamp"], row["day"], row["error"]) == (None, None, said)


@pytest.mark.parametrize(
    "fields, said",
    [
        ("_error STRING", "--fields: the name _error is the job's own"),
        ("a INT, _Record STRING", "--fields: the name _Record is the job's own"),
        ("a INT, A STRING", "--fields: A is there twice"),
        ("m MAP<INT, INT>", "--fields 'm MAP<INT, INT>' cannot be read"),
    ],
)
def test_fields_that_cannot_be_are_refused_by_name(spark, fields, said):
    with pytest.raises(SettingError) as refused:
        read_values(records(spark, [b""]), fields)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "require, said",
    [
        (
            "c > 1",
            "--require 'c > 1': A column, variable, or function parameter with name `c` cannot",
        ),
        ("a +", "--require 'a +': Syntax error"),
        ("a", "--require 'a' is INT; write a condition"),
        ("count(*) > 1", "--require 'count(*) > 1'"),
    ],
)
def test_a_condition_that_cannot_be_is_refused_in_one_sentence(spark, require, said):
    with pytest.raises(SettingError) as refused:
        read_values(records(spark, [b""]), FIELDS, require)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
