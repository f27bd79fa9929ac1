import pytest
from logfleet.client.offsets import TopicPartition
from logfleet_spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    OptionError,
    Topics,
    sink_options,
    source_options,
)

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def test_a_batch_reads_everything_unless_told_otherwise():
    options = source_options(BASE, streaming=False)
    assert options.topics == Topics(names=("t",))
    assert (options.starting, options.ending) == (Bound(special=EARLIEST), Bound(special=LATEST))
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_starts_at_the_end_unless_told_otherwise():
    assert source_options(BASE, streaming=True).starting == Bound(special=LATEST)


def test_names_do_not_depend_on_case_since_spark_lowers_them():
    options = source_options(
        {**BASE, "STARTINGOFFSETS": "Earliest", "includeheaders": "TRUE", "minPartitions": "7"},
        streaming=True,
    )
    assert options.starting == Bound(special=EARLIEST)
    assert options.include_headers
    assert options.min_partitions == 7


def test_offsets_per_partition_may_be_special():
    text = '{"t": {"0": 23, "1": -1, "2": -2}}'
    options = source_options({**BASE, "startingOffsets": text}, streaming=True)
    assert options.starting.offsets == {
        TopicPartition("t", 0): 23,
        TopicPartition("t", 1): LATEST,
        TopicPartition("t", 2): EARLIEST,
    }


def test_one_timestamp_wins_over_timestamps_and_offsets():
    options = source_options(
        {
            **BASE,
            "startingTimestamp": "5",
            "startingOffsetsByTimestamp": '{"t": {"0": 6}}',
            "startingOffsets": "earliest",
        },
        streaming=False,
    )
    assert options.starting == Bound(timestamp_ms=5, unmatched="error")


def test_an_ending_timestamp_beyond_the_last_record_means_the_end():
    options = source_options({**BASE, "endingTimestamp": "9"}, streaming=False)
    assert options.ending == Bound(timestamp_ms=9, unmatched="latest")


def test_client_options_lose_their_prefix():
    options = source_options({**BASE, "kafka.isolation.level": "read_committed"}, streaming=False)
    assert options.client == {"isolation.level": "read_committed"}


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"assign": '{"t": [0]}'}, "exactly one"),
        ({"subscribe": ""}, "exactly one"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern"),
        ({"subscribe": "", "assign": "[0]"}, "assign"),
        ({"subscribe": "", "assign": '{"t": 0}'}, "assign"),
        ({"subscribe": "", "assign": '{"t": [true]}'}, "assign"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "startingOffsets"),
        ({"startingOffsets": '{"t": '}, "startingOffsets"),
        ({"startingTimestamp": "noon"}, "startingTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
    ],
)
def test_a_wrong_option_is_named(changes, named):
    with pytest.raises(OptionError, match=named.replace(".", r"\.")):
        source_options({**BASE, **changes}, streaming=False)


def test_a_stream_has_no_end():
    with pytest.raises(OptionError, match="endingOffsets"):
        source_options({**BASE, "endingOffsets": "latest"}, streaming=True)


def test_a_sink_may_leave_the_topic_to_each_row():
    assert sink_options({"kafka.bootstrap.servers": "a:1"}).topic is None
    assert sink_options({"kafka.bootstrap.servers": "a:1", "Topic": "t"}).topic == "t"
