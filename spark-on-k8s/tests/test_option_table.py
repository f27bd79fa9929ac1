"""Every row of the page of options: both sources read and write the same with it, or ours refuses it by name as the page says."""

import pytest

from e2e.harness.spark_topics import SOURCES, T0, NumberedTopic, drained, rows, written
from e2e.pages import spark_options as page

ALL_OFFSETS = '{"TOPIC": {"0": 5, "1": 6, "2": 7}}'
ALL_TIMES = f'{{"TOPIC": {{"0": {T0 + 30}, "1": {T0 + 31}, "2": {T0 + 32}}}}}'
FITTING = {
    "kafka.bootstrap.servers": None,
    "subscribe": "TOPIC",
    "subscribePattern": r"^\QTOPIC\E$",
    "assign": '{"TOPIC": [0, 2]}',
    "startingOffsets": ALL_OFFSETS,
    "endingOffsets": ALL_OFFSETS,
    "startingTimestamp": str(T0 + 45),
    "endingTimestamp": str(T0 + 45),
    "startingOffsetsByTimestamp": ALL_TIMES,
    "endingOffsetsByTimestamp": ALL_TIMES,
    "maxOffsetsPerTrigger": "30",
    "minOffsetsPerTrigger": "30",
    "maxRecordsPerPartition": "7",
    "topic": "TOPIC",
}
"""Values that mean something on a topic of 90 records, where the page's mean a topic of its own; None: what the rig says."""
IN_STREAMS = {
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "failOnDataLoss",
}
"""Options of both that a stream has a path of its own for; the others are told apart by nothing but how they are parsed."""


def of(use):
    return [pytest.param(option, id=option.name) for option in page.OPTIONS if use in option.uses]


def given(option):
    value = FITTING.get(option.name, option.sample)
    return {} if value is None else {option.name: value}


def refusal(option, use):
    """A text of the page's that ours must raise, or None where it takes the option."""
    taken = page.taken(option, use)
    return taken.removeprefix("no: ").split(":")[0] if taken.startswith("no: ") else None


@pytest.fixture(scope="module")
def full(broker):
    """90 records; no test changes it."""
    topic = NumberedTopic(broker.bootstrap)
    topic.produce(range(90))
    return topic


@pytest.mark.parametrize("option", of("batch"))
def test_a_batch_reads_the_same_with_it(spark, full, option):
    options = given(option)
    if refused := refusal(option, "batch"):
        with pytest.raises(Exception, match=refused):
            full.batch(spark, **options)
        return
    ours, theirs = (rows(full.batch(spark, source, **options)) for source in SOURCES)
    assert ours == theirs
    assert ours


@pytest.mark.parametrize("option", of("stream"))
def test_a_stream_reads_the_same_with_it(spark, full, tmp_path, option):
    options = given(option)
    if refused := refusal(option, "stream"):
        with pytest.raises(Exception, match=refused):
            full.stream(spark, **options)
        return
    ours, theirs = (full.stream(spark, source, **options) for source in SOURCES)
    assert ours.schema.names == theirs.schema.names
    if "batch" in option.uses and option.name not in IN_STREAMS:
        return
    for source, frame in zip(SOURCES, (ours, theirs), strict=True):
        drained(frame, tmp_path / source)
    ours, theirs = (written(spark, tmp_path / source) for source in SOURCES)
    assert ours == theirs
    assert ours


@pytest.mark.parametrize("option", of("write"))
def test_a_write_writes_the_same_with_it(spark, broker, option):
    """In one task, so that rows keep their order."""
    frame = spark.createDataFrame(
        [(f"k{n}", f"v{n}", n % 3) for n in range(30)], "key STRING, value STRING, partition INT"
    ).coalesce(1)
    found = []
    for source in SOURCES:
        topic = NumberedTopic(broker.bootstrap)
        options = {**topic.named({"topic": "TOPIC", **given(option)})}
        options.pop("subscribe")
        writer = frame.write.format(source).mode("append").options(**options)
        if source == "logfleet" and (refused := refusal(option, "write")):
            with pytest.raises(Exception, match=refused):
                writer.save()
            return
        writer.save()
        found.append(rows(topic.batch(spark)))
    assert all(each == found[0] for each in found)
    assert len(found[0]) == 30
