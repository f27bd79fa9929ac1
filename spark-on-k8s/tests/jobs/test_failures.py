"""The cause of a failure as Spark hands it on: raised on the driver, in a foreachBatch, in a Python worker, in the JVM."""

import json
import logging
import socket

import pytest
from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.failures import CHARACTERS_MAX, cause_of
from logfleet_spark.jobs.running import NO_WORKER, Job, Stop, program
from pyspark.sql.functions import udf

from e2e.harness.spark_topics import NumberedTopic


@pytest.fixture(scope="module")
def topic(broker):
    made = NumberedTopic(broker.bootstrap, partitions=1)
    made.produce(range(5), spread=1)
    return made


@pytest.fixture
def streamed(job, topic, tmp_path):
    """Runs a query over the topic to its end."""

    def run(write, **options):
        wanted = {"startingOffsets": "earliest", "subscribe": topic.name, **options}
        frame = job.spark.readStream.format("logfleet").options(
            **{"kafka.bootstrap.servers": topic.bootstrap, **wanted}
        )
        more = {"name": "q", "checkpoint": str(tmp_path / "c"), "trigger": "available-now"}
        job.run([job.start(frame.load().writeStream, write, **more)])

    return run


@pytest.fixture
def of_tests(monkeypatch, spark):
    """Programs run in the session of the tests, which goes on afterwards, and leave its signals alone."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(Stop, "on_sigterm", lambda _: None)


def count(frame, _batch_id):
    frame.count()


def cause_in(call, *arguments, **options):
    with pytest.raises(Exception) as raised:  # noqa: PT011  (what it is, differs)
        call(*arguments, **options)
    return cause_of(raised.value)


def test_what_the_source_raises_is_a_sentence(streamed):
    assert cause_in(streamed, count, subscribe="nowhere") == (
        "topic nowhere does not exist; create it or correct the name"
    )


def test_records_that_are_gone_are_a_sentence(streamed, topic):
    start = json.dumps({topic.name: {"0": 30}})
    shown = cause_in(streamed, count, startingOffsets=start)
    assert shown.startswith("records were deleted before they were read: ")
    assert shown.endswith("set failOnDataLoss=false to go on without them")


def test_what_a_batch_raises_is_known_with_its_number(streamed, job):
    def write(frame, batch_id):
        if frame.count():
            raise OSError(28, "No space left on device")

    assert cause_in(streamed, write) == "OSError: [Errno 28] No space left on device"
    assert job.stop.failed is not None
    batch_id, problem = job.stop.failed
    assert (batch_id, problem.errno) == (1, 28)


def test_what_a_task_raises_is_a_sentence(streamed):
    def divide(frame, _batch_id):
        frame.select(udf(lambda offset: offset // 0, "int")("offset")).collect()

    assert cause_in(streamed, divide) == "ZeroDivisionError: integer division or modulo by zero"


def test_what_the_jvm_raises_is_a_sentence(spark, streamed):
    def write(frame, _batch_id):
        frame.write.parquet("/proc/nowhere")

    assert cause_in(streamed, write).startswith("IOException: Mkdirs failed to create file:/proc")
    assert cause_in(spark.read.parquet, "/nowhere") == (
        "[PATH_NOT_FOUND] Path does not exist: file:/nowhere."
    )
    unknown = cause_in(spark.range(1).select, "nope")
    assert unknown.startswith("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or ")
    assert "Project" not in unknown
    wrong = cause_in(spark.range(1).where, "id >")
    assert wrong == "[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. (line 1, pos 4)"
    assert cause_in(spark.read.parquet, "s3a://b/x") == (
        "RuntimeException: java.lang.ClassNotFoundException: "
        "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    )


def test_a_cause_of_many_words_is_cut():
    assert len(cause_of(ValueError("x" * 2 * CHARACTERS_MAX))) == CHARACTERS_MAX + len("...")


@pytest.mark.parametrize("failures, code", [(1, None), (2, 1)])
@pytest.mark.usefixtures("of_tests")
def test_a_job_tries_once_more_where_a_python_worker_did_not_start(
    tmp_path, capsys, caplog, failures, code
):
    left = [RuntimeError(f"{NO_WORKER}.")] * failures
    ran = []

    def run(job):
        ran.append(job)
        if left:
            raise left.pop()

    settings = {"metrics_port": 0, "trace_file": str(tmp_path / "trace")}
    with caplog.at_level(logging.INFO):
        if code is None:
            program("j", settings, run)
        else:
            with pytest.raises(SystemExit) as ended:
                program("j", settings, run)
            assert ended.value.code == code
            assert capsys.readouterr().err.startswith(f"j failed: RuntimeError: {NO_WORKER}.")
            assert "raise left.pop()" in (tmp_path / "trace").read_text()
    assert len(ran) == 2
    assert "a Python worker did not start within 10 s; trying again" in caplog.text


@pytest.mark.usefixtures("of_tests")
def test_a_query_whose_python_worker_did_not_start_is_started_again(spark, topic, tmp_path, caplog):
    """Its failure stops the job's other queries, and not those of the second try."""
    left = [RuntimeError(NO_WORKER)]
    written = []

    def write(frame, _batch_id):
        if left:
            raise left.pop()
        written.append(frame.count())

    def run(job):
        more = {"name": "q", "checkpoint": str(tmp_path / "c"), "trigger": "available-now"}
        job.run([job.start(topic.stream(spark).writeStream, write, **more)])

    with caplog.at_level(logging.INFO):
        program("j", {"metrics_port": 0, "trace_file": None}, run)
    assert sum(written) == 5
    assert "stopped at the end of a batch" not in caplog.text


@pytest.mark.usefixtures("of_tests")
def test_a_port_that_is_taken_costs_the_metrics_and_not_the_job(caplog):
    ran: list[Job] = []
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        program("j", {"metrics_port": port, "trace_file": None}, ran.append)
    assert [type(each) for each in ran] == [Job]
    assert f"port {port} cannot be used (Address already in use)" in caplog.text


@pytest.mark.parametrize(
    "trace_file, more",
    [("-", ""), ("/nowhere/trace", " (--trace-file /nowhere/trace: No such file or directory; ")],
)
@pytest.mark.usefixtures("of_tests")
def test_a_trace_goes_to_standard_error_if_no_file_takes_it(capsys, trace_file, more):
    def run(_job):
        raise ValueError("the moon is full")

    with pytest.raises(SystemExit) as ended:
        program("j", {"metrics_port": 0, "trace_file": trace_file}, run)
    assert ended.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith(f"j failed: ValueError: the moon is full{more}")


@pytest.mark.parametrize(
    "raised, code, sentence",
    [
        (
            KeyboardInterrupt(),
            130,
            "j: stopped by Ctrl-C; the next start does the last batch again",
        ),
        (SettingError("--fields: too few"), 2, "j: error: --fields: too few"),
        (
            ConnectionRefusedError("Connection refused"),
            1,
            "j failed: Spark's JVM has ended; its log says why",
        ),
    ],
)
@pytest.mark.usefixtures("of_tests")
def test_what_a_user_does_has_a_sentence_and_no_trace(capsys, raised, code, sentence):
    def run(_job):
        raise raised

    with pytest.raises(SystemExit) as ended:
        program("j", {"metrics_port": 0, "trace_file": None}, run)
    assert ended.value.code == code
    assert capsys.readouterr().err == f"{sentence}\n"
