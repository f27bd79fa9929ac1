import pytest
from logfleet.client.offsets import IsolationLevel, TopicPartition
from logfleet.records.compression import Codec
from logfleet_spark.client_options import OPTIONS, ClientOptions, OptionError, client_options
from logfleet_spark.options import (
    DEFAULT_COLUMNS,
    EARLIEST,
    LATEST,
    Bound,
    Topics,
    check_read,
    read_columns,
    sink_options,
    source_options,
)

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def test_a_batch_reads_everything_unless_told_otherwise():
    options = source_options(BASE, streaming=False)
    assert options.topics == Topics(names=("t",))
    assert (options.starting, options.ending) == (Bound(special=EARLIEST), Bound(special=LATEST))
    assert options.fail_on_data_loss
    assert options.columns == DEFAULT_COLUMNS


def test_a_stream_starts_at_the_end_unless_told_otherwise():
    assert source_options(BASE, streaming=True).starting == Bound(special=LATEST)


def test_names_do_not_depend_on_case_since_spark_lowers_them():
    options = source_options(
        {**BASE, "STARTINGOFFSETS": "Earliest", "includeheaders": "TRUE", "minPartitions": "7"},
        streaming=True,
    )
    assert options.starting == Bound(special=EARLIEST)
    assert options.columns == (*DEFAULT_COLUMNS, "headers")
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


def test_client_options_become_arguments_of_our_client():
    given = {
        "kafka.client.id": "c",
        "kafka.request.timeout.ms": "5",
        "kafka.default.api.timeout.ms": "6",
    }
    common = {"client_id": "c", "request_timeout_ms": 5, "timeout_ms": 6}
    reading = {
        "kafka.group.id": "g",
        "kafka.fetch.min.bytes": "1",
        "kafka.fetch.max.wait.ms": "0",
        "kafka.fetch.max.bytes": "3",
        "kafka.max.partition.fetch.bytes": "4",
        "kafka.client.rack": "a",
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": "PLAINTEXT",
    }
    assert client_options(given | reading, "stream read") == ClientOptions(
        client=common,
        fetcher={
            "min_bytes": 1,
            "max_wait_ms": 0,
            "max_bytes": 3,
            "partition_bytes": 4,
            "rack": "a",
            "isolation": IsolationLevel.READ_COMMITTED,
        },
        group="g",
    )
    writing = {
        "kafka.compression.type": "zstd",
        "kafka.linger.ms": "0",
        "kafka.batch.size": "1",
        "kafka.buffer.memory": "2",
        "kafka.delivery.timeout.ms": "3",
        "kafka.transaction.timeout.ms": "4",
    }
    assert client_options(given | writing, "write") == ClientOptions(
        client=common,
        producer={
            "codec": Codec.ZSTD,
            "linger_ms": 0,
            "batch_bytes": 1,
            "buffer_bytes": 2,
            "delivery_timeout_ms": 3,
        },
        transaction={"timeout_ms": 4},
    )
    tried = {key.removeprefix("kafka.") for key in given | reading | writing}
    assert tried == set(OPTIONS)


@pytest.mark.parametrize(
    "option, use, why",
    [
        ("group.id", "write", "no meaning for a write"),
        ("acks", "stream read", "no meaning for a stream read"),
        ("fetch.min.bytes", "write", "no meaning for a write"),
        ("linger.ms", "batch read", "no meaning"),
        ("max.poll.records", "write", "no meaning for a write"),
        ("max.poll.record", "stream read", "not supported; a stream read takes kafka.client.id"),
        ("sasl.jaas.config", "write", "not supported; a write takes kafka.batch.size"),
    ],
)
def test_a_client_option_that_would_change_nothing_is_refused(option, use, why):
    with pytest.raises(OptionError, match=rf"^kafka\.{option}: .*{why}"):
        client_options({f"kafka.{option}": "1"}, use)


@pytest.mark.parametrize(
    "option, value, use, sentence",
    [
        ("acks", "1", "write", "all in-sync replicas acknowledge each record"),
        ("enable.idempotence", "false", "write", "a retried request never writes twice"),
        ("retries", "3", "write", "a write is retried until kafka.delivery.timeout.ms is over"),
        ("session.timeout.ms", "9", "stream read", "reads join no group"),
        ("group.id", "g", "batch read", "a batch read joins no group"),
    ],
)
def test_a_harmless_option_is_taken_with_a_sentence(option, value, use, sentence):
    taken = client_options({f"kafka.{option}": value}, use)
    assert taken == ClientOptions(unused=(f"kafka.{option} has no effect: {sentence}",))


@pytest.mark.parametrize(
    "option, value", [("acks", "all"), ("acks", "-1"), ("enable.idempotence", "true")]
)
def test_what_holds_anyway_needs_no_sentence(option, value):
    assert client_options({f"kafka.{option}": value}, "write") == ClientOptions()


@pytest.mark.parametrize(
    "option, value",
    [
        ("isolation.level", "read_some"),
        ("security.protocol", "SASL_SSL"),
        ("compression.type", "brotli"),
        ("client.id", " "),
        ("request.timeout.ms", "0"),
        ("request.timeout.ms", "5 s"),
        ("fetch.max.bytes", str(2**31)),
    ],
)
def test_a_value_that_we_do_not_carry_out_is_refused(option, value):
    use = OPTIONS[option].uses[-1]
    with pytest.raises(OptionError, match=rf"^kafka\.{option}: '{value}' cannot be used; "):
        client_options({f"kafka.{option}": value}, use)


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
        ({"maxOffsetsPerTrigger": "9"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9"}, "minOffsetsPerTrigger: only for streams"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
        ({"startingOffset": "earliest"}, "startingoffset: no such option"),
        ({"groupIdPrefixes": "g"}, "groupidprefixes: no such option"),
        ({"topic": "t"}, "topic: no such option"),
        ({"includeHeaders": "yes"}, "includeHeaders"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
    ],
)
def test_a_wrong_option_is_named(changes, named):
    with pytest.raises(OptionError, match=named.replace(".", r"\.")):
        source_options({**BASE, **changes}, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(OptionError, match=f"^{name}: only for batch reads"):
        source_options({**BASE, name: "1"}, streaming=True)


def test_options_of_sparks_connector_that_nothing_here_needs_are_taken_with_a_sentence():
    given = {
        "groupIdPrefix": "g",
        "fetchOffset.numRetries": "9",
        "fetchOffset.retryIntervalMs": "9",
        "kafkaConsumer.pollTimeoutMs": "9",
        "kafka.max.poll.records": "9",
    }
    for streaming in (False, True):
        unused = source_options({**BASE, **given}, streaming=streaming).unused
        assert [sentence.partition(" has no effect: ")[0] for sentence in unused] == sorted(
            given, key=lambda name: (name.startswith("kafka."), name.lower())
        )


def test_a_micro_batch_may_wait_for_more():
    given = {
        **BASE,
        "minOffsetsPerTrigger": "5",
        "maxOffsetsPerTrigger": "5",
        "maxTriggerDelay": "2m",
    }
    options = source_options(given, streaming=True)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (5, 120_000)
    assert source_options(BASE, streaming=True).max_trigger_delay_ms == 900_000


@pytest.mark.parametrize(
    "text, milliseconds",
    [
        ("7", 7),
        ("7ms", 7),
        ("7000us", 7),
        ("7 ", 7),
        ("7S", 7_000),
        ("7min", 420_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
    ],
)
def test_a_length_of_time_has_sparks_units(text, milliseconds):
    options = source_options({**BASE, "maxTriggerDelay": text}, streaming=True)
    assert options.max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    "changes, named",
    [
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger: 5 is more",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        ({"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(changes, named):
    with pytest.raises(OptionError, match=f"^{named}"):
        source_options({**BASE, **changes}, streaming=True)


@pytest.mark.parametrize("given", [{"endingOffsets": "latest"}, {"maxOffsetsPerTrigger": "5"}, {}])
def test_at_load_options_pass_that_a_batch_or_a_stream_takes(given):
    check_read({**BASE, **given})


@pytest.mark.parametrize(
    "given, named",
    [
        ({"startingOffset": "earliest"}, "startingoffset: no such option"),
        ({"endingOffsets": "earliest"}, "endingOffsets: write latest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: '0'"),
    ],
)
def test_at_load_a_wrong_option_is_named(given, named):
    with pytest.raises(OptionError, match=f"^{named}"):
        check_read({**BASE, **given})


def test_a_limit_per_trigger_is_a_positive_number():
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        source_options({**BASE, "maxOffsetsPerTrigger": "0"}, streaming=True)


def test_the_headers_column_is_asked_for_in_any_case():
    assert read_columns({"INCLUDEHEADERS": " True "})[-1] == "headers"
    assert read_columns({}) == DEFAULT_COLUMNS


def test_columns_are_those_that_are_named_in_the_order_of_sparks_source():
    assert read_columns({"includeColumns": "timestamp, VALUE,value"}) == ("value", "timestamp")
    assert read_columns({"includecolumns": "headers,key"}) == ("key", "headers")
    assert read_columns({"includeColumns": "headers", "includeHeaders": "true"}) == ("headers",)


@pytest.mark.parametrize(
    "given, named",
    [
        (
            {"includeColumns": "value,valeu"},
            "includeColumns: there is no column valeu; name some of key, value",
        ),
        ({"includeColumns": " , "}, "includeColumns: no column named"),
        (
            {"includeColumns": "value", "includeHeaders": "true"},
            "includeHeaders: includeColumns does not name headers",
        ),
        ({"filterPushdown": "yes"}, "filterPushdown: 'yes'"),
        ({"kafka.bootstrap.servers": "h:abc"}, "kafka.bootstrap.servers: 'h:abc' is no address"),
    ],
)
def test_wrong_columns_are_refused_at_load(given, named):
    with pytest.raises(OptionError, match=f"^{named}"):
        check_read({**BASE, **given})


SINK = {"kafka.bootstrap.servers": "a:1"}


def test_a_sink_may_leave_the_topic_to_each_row():
    assert sink_options(SINK).topic is None
    assert sink_options({**SINK, "Topic": " t "}).topic == "t"


def test_a_sink_takes_what_spark_adds_to_the_options_of_a_stream():
    assert sink_options({**SINK, "checkpointLocation": "/c", "queryName": "q"}).topic is None


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"topic": " "}, "topic: empty"),
        ({"includeHeaders": "false"}, "includeHeaders: false"),
        ({"subscribe": "t"}, "subscribe: no such option"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: not supported"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers: missing"),
    ],
)
def test_a_wrong_option_of_a_sink_is_named(changes, named):
    with pytest.raises(OptionError, match=f"^{named}"):
        sink_options({**SINK, **changes})
