import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from logfleet_spark.jobs import dlq_router, table_to_topic, topic_to_table, window_counts
from logfleet_spark.jobs.settings import interval_ms, moment
from logfleet_spark.jobs.tables import sibling_folder

JOBS = (dlq_router, table_to_topic, topic_to_table, window_counts)
FILES = Path(__file__).resolve().parents[2] / "jobs"
CPU_S_MAX = 2.5
"""Of an error before Spark starts: imports. A JVM and its session take more than 10."""

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
    found = window_counts.parse_settings(
        [*given, "--window", "1 day", "--option", "minPartitions=5"]
    )
    assert (found.bootstrap_servers, found.topic, found.checkpoint) == (
        *("b:9092", "flights", "s3a://b/c"),
    )
    assert (found.window, found.max_offsets_per_trigger) == ("1 day", 500)
    assert dict(found.option) == {"minPartitions": "5", "kafka.group.id": "g"}


@pytest.mark.parametrize(
    "text, said",
    [
        ("topics: t", "there is no option 'topics'; choose from: aggregate, bootstrap-servers,"),
        ("- topic", "write a mapping of option names to values"),
        ("topic: [a, b]", "topic: write one value"),
        ("topic: [a", "not YAML: while parsing"),
        ("max-offsets-per-trigger: many", "--max-offsets-per-trigger: 'many' is not a positive"),
        ("option: [x]", "--option: 'x' is not KEY=VALUE"),
        ("settings: other", "there is no option 'settings'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, capsys, text, said):
    with pytest.raises(SystemExit) as ended:
        window_counts.parse_settings([*file(text), *BASIC])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        window_counts.parse_settings(["--settings", "/nowhere.yaml", *BASIC])
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
        (["--exactly-once"], "--exactly-once is for --sink topic"),
        (
            ["--sink", "topic", "--output", "o", "--exactly-once", "--source", "kafka"],
            "--exactly-once: Spark's connector cannot",
        ),
        (["--sink", "database", "--output", "t"], "needs --database-url postgresql://USER@HOST/"),
        (
            ["--sink", "database", "--output", "t", "--database-url", "jdbc:postgresql://h/d"],
            "needs --database-url postgresql://USER@HOST/",
        ),
        (
            ["--sink", "database", "--database-url", "postgresql://h/d", "--output", "a; DROP"],
            "--output 'a; DROP' is no table",
        ),
        (
            ["--sink", "database", "--database-url", "postgresql://h/d", "--output", "a.b.c"],
            "--output 'a.b.c' is no table",
        ),
        (["--option", "minPartitions"], "--option: 'minPartitions' is not KEY=VALUE"),
        (["--output-mode", "complete"], "--output-mode"),
        (["--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger: '0' is not a positive"),
        (
            ["--sink", "delta", "--output", "/c/"],
            "--checkpoint and --output are both /c; write another",
        ),
        (["--topi", "u"], "unrecognized arguments: --topi u"),
        (["--window", "1 month"], "--window: '1 month' is not an interval; write a number and a"),
        (["--window", "an hour"], "--window: 'an hour' is not an interval"),
        (["--window", "0 hours"], "--window: '0 hours' is an interval of no length"),
        (["--slide", "2 hours"], "--slide is longer than --window"),
        (["--watermark", "1 day ago"], "--watermark: '1 day ago' is not an interval"),
        (["--trigger", "soon"], "--trigger: 'soon' is not an interval"),
        (["--metrics-port", "66000"], "--metrics-port: '66000' is not a port"),
        (["--option", "minPartition=3"], "minpartition: no such option; choose from: assign,"),
        (["--option", "endingOffsets=latest"], "endingOffsets: only for batch reads"),
        (["--starting-offsets", "soon"], "startingOffsets: write earliest, latest or {"),
        (["--sink-option", "kafka.acks=5x", "--sink-option", "topics=a"], "topics: no such option"),
        (
            ["--sink", "delta", "--output", "c/../c", "--checkpoint", "./c/../c/"],
            "--checkpoint and --output are both c/../c; write another",
        ),
    ],
)
def test_a_wrong_argument_is_named_before_spark_starts(capsys, wrong, said):
    with pytest.raises(SystemExit) as ended:
        window_counts.parse_settings([*BASIC, *wrong])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1, "one sentence"


@pytest.mark.parametrize("job", [each.NAME for each in JOBS])
def test_a_wrong_setting_ends_a_job_before_a_jvm_is_started(job, tmp_path):
    """A JVM cannot be started here: a job that tried would end with another error."""
    wrong = ["--bootstrap-servers", "a:1", "--shuffle-partitions", "0"]
    command = [sys.executable, str(FILES / f"{job}.py"), *wrong]
    nowhere = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    before = os.times()
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True, check=False)
    after = os.times()
    assert done.returncode == 2
    assert done.stderr.startswith(f"{job}: error: argument --shuffle-partitions: '0' is not a")
    assert done.stderr.count("\n") == 1
    taken_s = sum(after[2:4]) - sum(before[2:4])
    assert taken_s < CPU_S_MAX


@pytest.mark.parametrize("job", JOBS)
def test_help_shows_the_default_of_each_option_that_has_one(job, capsys):
    parser = job.make_parser()
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    shown = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    with_default = [
        option for option in parser.options.values() if option.default not in (None, "", False, [])
    ]
    assert {"source", "metrics_port"} <= {option.dest for option in with_default}
    for option in with_default:
        help_ = " ".join(f"{option.help}".split()) % vars(option)
        assert help_.endswith(f"(default: {option.default})")
        assert help_ in shown
    assert "(default: None)" not in shown


def test_a_password_in_a_url_that_is_wrong_is_not_repeated(capsys):
    url = "postgresql://u:hid den@h/d"
    with pytest.raises(SystemExit):
        window_counts.parse_settings(
            [*BASIC, "--sink", "database", "--output", "t", "--database-url", url]
        )
    said = capsys.readouterr().err
    assert "--database-url postgresql://" in said
    assert "hid" not in said


@pytest.mark.parametrize("table", ["t", "s.t", 'S."a.b"', '"a""b"', "größe"])
def test_a_table_is_named_as_in_sql(table):
    url = ["--database-url", "postgres://u@h/d"]
    found = window_counts.parse_settings([*BASIC, "--sink", "database", "--output", table, *url])
    assert found.output == table


@pytest.mark.parametrize(
    "more, rejected",
    [
        (
            ["--sink", "delta", "--output", "s3a://b/o/", "--fields", "a INT"],
            "s3a://b/o-rejected",
        ),
        (["--sink", "delta", "--output", "/o"], "/o-rejected"),
        (["--fields", "a INT"], None),
        (["--fields", "a INT", "--rejected", "hdfs://n/r"], "hdfs://n/r"),
        (["--sink", "delta", "--output", "/o", "--fields", "a INT", "--rejected", "none"], None),
    ],
)
def test_rejected_records_are_kept_beside_a_folder_unless_told_otherwise(more, rejected):
    assert window_counts.parse_settings([*BASIC, *more]).rejected == rejected


def test_a_folder_beside_another_is_no_folder_in_it():
    assert sibling_folder("s3a://bucket/counts/", "rejected") == "s3a://bucket/counts-rejected"


@pytest.mark.parametrize(
    "interval, ms",
    [
        ("10 seconds", 10_000),
        ("1 Minute", 60_000),
        ("interval 2 hours", 7_200_000),
        ("1 week 2 days 3 hours", 788_400_000),
        ("1500 microseconds", 1.5),
    ],
)
def test_an_interval_has_milliseconds(interval, ms):
    assert interval_ms(interval) == ms


@pytest.mark.parametrize("interval", ["", "soon", "5", "seconds", "1 year", "-1 day", "1 day!"])
def test_what_is_no_interval_of_days_or_less_is_refused(interval):
    with pytest.raises(argparse.ArgumentTypeError, match="is not an interval; write a number"):
        interval_ms(interval)


def test_a_time_without_zone_is_utc():
    assert moment("2013-01-01") == moment("2013-01-01T01:00:00+01:00")
