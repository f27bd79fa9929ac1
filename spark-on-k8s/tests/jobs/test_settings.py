import pytest
from logfleet_spark.jobs import window_counts
from logfleet_spark.jobs.running import interval_ms
from logfleet_spark.jobs.settings import moment
from logfleet_spark.jobs.tables import beside

BASIC = ["--bootstrap-servers", "a:1", "--topic", "t", "--checkpoint", "/c", "--event-time", "time"]


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return ["--settings", str(path)]

    return write


def test_a_file_says_what_options_say_and_the_command_line_wins(file):
    given = file(
        "bootstrap-servers: b:9092\ntopic: flights\nevent-time: timestamp\ncheckpoint: s3a://b/c\n"
        "window: 10 minutes\nmax-offsets-per-trigger: 500\n"
        "option: {minPartitions: 4, kafka.group.id: g}\n"
    )
    found = window_counts.settings([*given, "--window", "1 day", "--option", "minPartitions=5"])
    assert (found.bootstrap_servers, found.topic, found.checkpoint) == (
        *("b:9092", "flights", "s3a://b/c"),
    )
    assert (found.window, found.max_offsets_per_trigger) == ("1 day", 500)
    assert dict(found.option) == {"minPartitions": "5", "kafka.group.id": "g"}


@pytest.mark.parametrize(
    "text, said",
    [
        ("topics: t", "there is no option 'topics'; there is: bootstrap-servers, checkpoint,"),
        ("- topic", "write a mapping of option names to values"),
        ("topic: [a, b]", "topic: write one value"),
        ("topic: [a", "no YAML: while parsing"),
        ("max-offsets-per-trigger: many", "--max-offsets-per-trigger: 'many' is not a positive"),
        ("option: [x]", "--option: 'x' is not KEY=VALUE"),
        ("settings: other", "there is no option 'settings'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, capsys, text, said):
    with pytest.raises(SystemExit) as ended:
        window_counts.settings([*file(text), *BASIC])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        window_counts.settings(["--settings", "/nowhere.yaml", *BASIC])
    assert "--settings /nowhere.yaml: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong, said",
    [
        (["--sink", "delta"], "--sink delta needs --output"),
        (
            ["--sink", "parquet", "--output", "/o"],
            "--sink parquet is append-only: write --sink delta, or --output-mode append",
        ),
        (["--sink", "topic"], "--sink topic needs --output"),
        (["--sink", "jdbc", "--output", "t"], "--sink jdbc needs --jdbc-url"),
        (
            ["--sink", "jdbc", "--jdbc-url", "jdbc:x", "--output", "a; DROP"],
            "--output 'a; DROP' is no table",
        ),
        (["--option", "minPartitions"], "--option: 'minPartitions' is not KEY=VALUE"),
        (["--output-mode", "complete"], "--output-mode"),
        (["--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger: '0' is not a positive"),
        (["--rejected", "/r"], "--rejected needs --fields"),
        (
            ["--sink", "delta", "--output", "/c/"],
            "--checkpoint and --output are both /c; write another",
        ),
        (["--topi", "u"], "unrecognized arguments: --topi u"),
    ],
)
def test_a_wrong_argument_is_named_before_spark_starts(capsys, wrong, said):
    with pytest.raises(SystemExit) as ended:
        window_counts.settings([*BASIC, *wrong])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, rejected",
    [
        (
            ["--sink", "delta", "--output", "s3a://b/o/", "--fields", "a INT"],
            "s3a://b/o-rejected",
        ),
        (["--sink", "delta", "--output", "/o"], None),
        (["--fields", "a INT"], None),
        (["--fields", "a INT", "--rejected", "hdfs://n/r"], "hdfs://n/r"),
        (["--sink", "delta", "--output", "/o", "--fields", "a INT", "--rejected", "none"], None),
    ],
)
def test_rejected_records_are_kept_beside_a_folder_unless_told_otherwise(more, rejected):
    assert window_counts.settings([*BASIC, *more]).rejected == rejected


def test_a_folder_beside_another_is_no_folder_in_it():
    assert beside("s3a://bucket/counts/", "rejected") == "s3a://bucket/counts-rejected"


@pytest.mark.parametrize(
    "trigger, ms",
    [("10 seconds", 10_000), ("1 minute", 60_000), ("interval 2 hours", 7_200_000), ("soon", 0)],
)
def test_an_interval_is_told_in_milliseconds(trigger, ms):
    assert interval_ms(trigger) == ms


def test_a_time_without_zone_is_utc():
    assert moment("2013-01-01") == moment("2013-01-01T01:00:00+01:00")
