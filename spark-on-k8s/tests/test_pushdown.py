"""Filters of a batch read that cut what is read: the same rows as without, from fewer records."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.client.offsets import TopicPartition
from logfleet_spark.batch_reader import FilteringReader
from logfleet_spark.offsets import OffsetRange
from logfleet_spark.options import source_options
from logfleet_spark.pushdown import translate_filters
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from e2e.harness.spark_topics import T0, NumberedTopic, rows

TOPICS = ("a", "b", "ab")


def at(microseconds):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


VALUES = {
    "topic": st.sampled_from([*TOPICS, ""]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-2, 12),
    "timestamp": st.integers(-2_000, 9_000).map(at),
    "key": st.binary(max_size=1),
}
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def filters_of(column):
    some = VALUES[column]
    kinds = [
        st.builds(kind, st.just((column,)), some | st.none() if kind is EqualTo else some)
        for kind in COMPARISONS
    ]
    kinds.append(
        st.builds(In, st.just((column,)), st.lists(some | st.none(), max_size=3).map(tuple))
    )
    kinds += [st.builds(kind, st.just((column,))) for kind in (IsNull, IsNotNull)]
    if column == "topic":
        texts = (StringStartsWith, StringEndsWith, StringContains)
        kinds += [st.builds(kind, st.just((column,)), some) for kind in texts]
    return st.one_of(kinds) | st.builds(Not, st.one_of(kinds))


FILTERS = st.lists(st.sampled_from(sorted(VALUES)).flatmap(filters_of), max_size=3)
RECORDS = st.lists(
    st.tuples(st.binary(max_size=1) | st.none(), st.integers(0, 8)), min_size=6, max_size=10
)
LOGS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2)),
    RECORDS,
    min_size=1,
    max_size=4,
)


def evaluated(of, row):
    """Row by row, as SQL has it: None is NULL."""
    if isinstance(of, Not):
        found = evaluated(of.child, row)
        return None if found is None else not found
    value = row[of.attribute[0]]
    if isinstance(of, IsNull | IsNotNull):
        return (value is None) == isinstance(of, IsNull)
    if isinstance(of, EqualNullSafe):
        return value == of.value
    if value is None or of.value is None:
        return None
    if isinstance(of, In):
        if value in of.value:
            return True
        return None if None in of.value else False
    compare = {
        EqualTo: lambda: value == of.value,
        GreaterThan: lambda: value > of.value,
        GreaterThanOrEqual: lambda: value >= of.value,
        LessThan: lambda: value < of.value,
        LessThanOrEqual: lambda: value <= of.value,
        StringStartsWith: lambda: value.startswith(of.value),
        StringEndsWith: lambda: value.endswith(of.value),
        StringContains: lambda: of.value in value,
    }
    return compare[type(of)]()


def assert_same_rows(logs, filters):
    """What is read and filtered again is what all filters leave."""
    cut, left = translate_filters(filters)
    ranges = cut.partitions([OffsetRange(tp, 0, len(log)) for tp, log in logs.items()])
    first_at = {}
    if cut.from_ms is not None:
        for r in ranges:
            late = (o for o, (_, ms) in enumerate(logs[r.where]) if ms >= cut.from_ms)
            first_at[r.where] = next(late, None)
    read = {r.where: range(r.start, r.end) for r in cut.offsets(ranges, first_at)}
    for tp, log in logs.items():
        for offset, (key, ms) in enumerate(log):
            place = {"topic": tp.topic, "partition": tp.partition, "offset": offset}
            row = {**place, "timestamp": at(ms * 1000), "key": key}
            wanted = all(evaluated(each, row) is True for each in filters)
            again = all(evaluated(each, row) is True for each in left)
            assert wanted == (offset in read.get(tp, ()) and again), (row, filters)


@given(LOGS, FILTERS)
def test_filters_together_leave_the_same_rows(logs, filters):
    assert_same_rows(logs, filters)


FIXED = {
    TopicPartition(topic, partition): [(b"k", ms), (None, 3), (b"", 8), (b"k", 0), (b"l", 5)]
    for topic, partition, ms in (("a", 0, 0), ("a", 2, 4), ("ab", 0, 6))
}
SOME = {
    "topic": ("a", "b", "ab", ""),
    "partition": (-1, 0, 1, 2),
    "offset": (-1, 0, 1, 3, 4, 5, 9),
    "timestamp": tuple(map(at, (-1, 0, 1, 2_999, 3_000, 3_001, 8_000, 8_001))),
    "key": (b"k", b"x"),
}


@pytest.mark.parametrize("column", SOME)
def test_each_filter_leaves_the_same_rows(column):
    path, values = (column,), SOME[column]
    some: list[Filter] = [kind(path, value) for kind in COMPARISONS for value in values]
    some += [In(path, pair) for pair in itertools.product([*values, None], repeat=2)]
    some += [In(path, ()), IsNull(path), IsNotNull(path), EqualTo(path, None)]
    if column == "topic":
        texts = (StringStartsWith, StringEndsWith, StringContains)
        some += [kind(path, value) for kind in texts for value in values]
    for each in [*some, *map(Not, some)]:
        assert_same_rows(FIXED, [each])


def test_only_what_is_not_exact_is_left_to_spark():
    exact = [
        EqualTo(("topic",), "a"),
        Not(In(("partition",), (1, 2))),
        GreaterThan(("offset",), 5),
        LessThanOrEqual(("offset",), 9),
        IsNotNull(("offset",)),
    ]
    again = [
        In(("offset",), (3, 7)),
        GreaterThanOrEqual(("timestamp",), at(1_500)),
        LessThan(("timestamp",), at(9_000_000)),
        EqualTo(("key",), b"k"),
        EqualTo(("headers", "key"), "k"),
    ]
    cut, left = translate_filters([*exact, *again])
    assert left == again
    assert (cut.low, cut.end, cut.from_ms) == (6, 8, 2)


@pytest.fixture(scope="module")
def topic(broker):
    """300 records of which the times fall and rise."""
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(150, 300))
    topic.produce(range(150))
    return topic


T = "timestamp_millis({})"
CASES = {
    "partition": ("partition = 1", 100),
    "partitions": ("partition IN (0, 2)", 200),
    "another topic": ("topic = 'x'", 0),
    "offsets": ("offset >= 20 AND offset < 30", 30),
    "one record": ("partition = 2 AND offset = 7", 1),
    "some offsets": ("offset IN (3, 9)", 21),
    "not an offset": ("offset != 3", 300),
    # record n is at n milliseconds: the later half lies first
    "from a time": (f"timestamp >= {T.format(T0 + 240)}", 210),
    "from before all": (f"timestamp >= {T.format(T0)}", 300),
    "from after all": (f"timestamp > {T.format(T0 + 299)}", 0),
    "until a time": (f"timestamp < {T.format(T0 + 10)}", 300),
    "at a time": (f"timestamp = {T.format(T0 + 150)}", 300),
    "of a value": ("value = 'v7' AND partition = 1", 100),
    "or": ("partition = 1 OR offset = 3", 300),
    "nothing": ("partition = 0 AND offset > 100", 0),
}


def read_of(frame):
    """Rows that Spark got from the source: those of its scan's own metric."""
    plan = frame._jdf.queryExecution().executedPlan()
    while plan.children().nonEmpty():
        plan = plan.children().head()
    metric = plan.metrics().get("numOutputRows")
    return metric.get().value() if metric.isDefined() else 0


@pytest.mark.parametrize("condition, fetched", CASES.values(), ids=CASES)
def test_the_same_rows_are_given_from_fewer_records(spark, topic, condition, fetched):
    wanted = rows(topic.batch(spark, "kafka").where(condition))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = topic.batch(spark, filterPushdown="true").where(condition)
        assert rows(frame) == wanted
        assert read_of(frame) == fetched
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert rows(topic.batch(spark).where(condition)) == wanted


def test_explain_shows_what_is_cut(spark, topic, capsys):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        topic.batch(spark, filterPushdown="true").where("partition = 1").explain("formatted")
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert "EqualTo(partition,1)" in capsys.readouterr().out


def test_without_sparks_setting_the_option_is_refused_with_its_name(spark, topic):
    with pytest.raises(Exception, match=r"spark.sql.python.filterPushdown.enabled"):
        topic.batch(spark, filterPushdown="true").where("partition = 1").collect()


def test_without_the_option_one_frame_may_be_filtered_twice(spark, topic):
    """Spark 4.2 keeps one plan of a Python source per `load()`."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = topic.batch(spark)
        both = frame.where("offset < 50").union(frame.where("offset >= 50"))
        assert len(rows(both)) == len(rows(frame)) == 300
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_cut_read_plans_no_task_where_nothing_is_left(topic):
    reader = FilteringReader(source_options(topic.named({}), streaming=False))
    assert list(reader.pushFilters([EqualTo(("partition",), 9)])) == []
    assert reader.partitions() == []
