"""The job `dlq_router`: passes on readable records, and sends the others to a dead-letter topic.

With --replay it sends mended dead letters back.

A dead letter is the original record (key, value, headers) with additional headers for its origin
and the error. They have the names of Kafka's own dead-letter queues (KIP-1191), except the last two
(time and attempts), which are ours. Records are written at least once: a batch that was interrupted
is written again, so two dead letters with the same headers are of one record. With --exactly-once
all records of a batch are one transaction, which is committed once.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from logfleet_spark.jobs.expressions import expression
from logfleet_spark.jobs.records import ERROR, RECORD, read_values, send, stream
from logfleet_spark.jobs.running import Job, program
from logfleet_spark.jobs.settings import (
    Parser,
    add_cluster,
    add_exactly_once,
    add_sink,
    add_stream,
    check_exactly_once,
    names,
    positive,
    refuse_same,
)

NAME = "dlq_router"
TOPIC = "__dlq.errors.topic"
PARTITION = "__dlq.errors.partition"
OFFSET = "__dlq.errors.offset"
MESSAGE = "__dlq.errors.message"
TIME = "__dlq.errors.time"
"""When the error was settings, in ISO 8601."""
ATTEMPTS = "__dlq.errors.attempts"
"""How many times the record was settings to be wrong."""
OURS = (TOPIC, PARTITION, OFFSET, MESSAGE, TIME, ATTEMPTS)
HEADER = "struct<key: string, value: binary>"


def header(headers: Column, name: str) -> Column:
    """Return the last header of this name as text, null if there is none.

    Source: Headers.lastHeader of Kafka.
    """
    named = F.filter(F.coalesce(headers, _no_headers()), lambda each: each["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def _no_headers() -> Column:
    return F.array().cast(f"array<{HEADER}>")


def _header_struct(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _without_own_headers(headers: Column) -> Column:
    """Return the headers without those of this job; null if none are left."""
    left = F.filter(F.coalesce(headers, _no_headers()), lambda each: ~each["key"].isin(*OURS))
    return F.when(F.size(left) > 0, left)


def good_records(events: DataFrame) -> DataFrame:
    """Return the original records of the rows without an error."""
    sound = events.where(F.col(ERROR).isNull())
    return sound.select(f"{RECORD}.key", f"{RECORD}.value", f"{RECORD}.headers")


def dead_letters(events: DataFrame, now: Column) -> DataFrame:
    """Return a dead letter for each row with an error.

    If the record was a dead letter before, it keeps the origin in its headers, and its attempts
    increase by one.
    """
    wrong = events.where(F.col(ERROR).isNotNull()).select(f"{RECORD}.*", F.col(ERROR))
    first = {TOPIC: "topic", PARTITION: "partition", OFFSET: "offset"}
    headers = F.col("headers")
    before = F.coalesce(header(headers, ATTEMPTS).try_cast("int"), F.lit(0))
    added = [
        *(
            _header_struct(name, F.coalesce(header(headers, name), F.col(own).cast("string")))
            for name, own in first.items()
        ),
        _header_struct(MESSAGE, F.col(ERROR)),
        _header_struct(TIME, F.date_format(now, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")),
        _header_struct(ATTEMPTS, before + 1),
    ]
    kept = F.coalesce(_without_own_headers(headers), _no_headers())
    return wrong.select("key", "value", F.concat(kept, F.array(*added)).alias("headers"))


def mended(records: DataFrame, mend: str | None) -> DataFrame:
    """Return dead letters with values that may be readable now.

    Raises SettingError for a wrong `mend`.

    mend: a SQL expression over key, value (both text) and error. Where it is NULL the value stays,
    as a record without a value would be a deletion. None changes nothing.
    """
    if mend is None:
        return records
    columns = list(records.columns)
    texts = records.withColumns(
        {
            "_key": F.col("key"),
            "key": F.col("key").cast("string"),
            "value": F.col("value").cast("string"),
            "error": header(F.col("headers"), MESSAGE),
        }
    )
    made, _ = expression(texts, "--mend", mend)
    value = F.coalesce(made.cast("string"), F.col("value")).cast("binary")
    changed = texts.withColumn("value", value)
    return changed.drop("key", "error").withColumnRenamed("_key", "key").select(*columns)


def make_parser() -> Parser:
    parser = Parser(
        NAME,
        "Send records that cannot be read to a dead-letter topic, the others on; or, with --replay, mended dead letters back.",
    )
    add = parser.add_argument
    add_cluster(parser)
    add("--topic", type=names, help="topic to read, or several: NAME,NAME (not with --replay)")
    add("--fields", required=True, help="JSON fields that a value must fit, as DDL")
    add("--require", help='SQL condition that rows must meet too, such as "origin IS NOT NULL"')
    add("--output-topic", help="topic for good records; if left out they are not copied")
    add("--dlq-topic", required=True, help="where dead letters go")
    add("--replay", action="store_true", help="read the dead-letter topic instead")
    add("--mend", help="with --replay: SQL expression over key, value, error (text): the new value")
    add(
        "--replay-topic",
        help="with --replay: where mended records go; default: where they came from",
    )
    add(
        "--attempts-max",
        type=positive,
        default=5,
        help="with --replay: dead letters with this many attempts are not replayed",
    )
    add_sink(parser)
    add_exactly_once(parser)
    add_stream(parser)
    return parser


def parse_settings(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = make_parser()
    settings = parser.settings(argv)
    check_exactly_once(parser, settings)
    if settings.replay and (settings.topic or settings.output_topic):
        parser.error("--replay reads --dlq-topic: leave out --topic and --output-topic")
    if not settings.replay and not settings.topic:
        parser.error("write --topic, or --replay")
    if not settings.replay and (settings.mend or settings.replay_topic):
        parser.error("--mend and --replay-topic are for --replay")
    refuse_same(parser, settings, ("--output-topic", "--dlq-topic", "--replay-topic"))
    for name in settings.topic or ():
        if name in {settings.dlq_topic, settings.output_topic}:
            parser.error(
                f"--topic {name} is written to as well; the job would read its own records"
            )
    return settings


def routed(records: DataFrame, settings: argparse.Namespace) -> DataFrame:
    return read_values(records, settings.fields, settings.require)


def replayed(records: DataFrame, settings: argparse.Namespace) -> DataFrame:
    """Return dead letters below the limit of attempts, as rows.

    Those that cannot go back have an ERROR.
    """
    attempts = F.coalesce(header(F.col("headers"), ATTEMPTS).try_cast("int"), F.lit(0))
    again = records.where(attempts < settings.attempts_max)
    events = read_values(mended(again, settings.mend), settings.fields, settings.require)
    lost = F.when(
        target(settings).isNull(), F.lit(f"there is no header {TOPIC}; give --replay-topic")
    )
    return events.withColumn(ERROR, F.coalesce(ERROR, lost))


def target(settings: argparse.Namespace) -> Column:
    """Return the topic to which a dead letter goes back; null if it is not known.

    It is the setting --replay-topic, else the topic in the dead letter's headers.
    """
    return F.coalesce(F.lit(settings.replay_topic), header(F.col(f"{RECORD}.headers"), TOPIC))


def route(job: Job, settings: argparse.Namespace, records: DataFrame, batch_id: int) -> None:
    """Write one micro-batch: good records to the output topic, others to the dead-letter topic."""
    events = routed(records, settings).persist()
    try:
        both = _for_topic(dead_letters(events, F.current_timestamp()), settings.dlq_topic)
        if settings.output_topic:
            both = both.unionByName(_for_topic(good_records(events), settings.output_topic))
        send(both, settings, None, batch_id)
        job.metrics.count("dead_letters", events.where(F.col(ERROR).isNotNull()).count())
    finally:
        events.unpersist()


def _for_topic(records: DataFrame, topic: str) -> DataFrame:
    return records.withColumn("topic", F.lit(topic))


def replay(job: Job, settings: argparse.Namespace, records: DataFrame, batch_id: int) -> None:
    """Send records that can be read now back, and the others to the end of the dead-letter topic.

    Records that reached the limit of attempts stay where they are.
    """
    events = replayed(records, settings).persist()
    try:
        dead = _for_topic(dead_letters(events, F.current_timestamp()), settings.dlq_topic)
        back = events.where(F.col(ERROR).isNull()).select(
            target(settings).alias("topic"),
            f"{RECORD}.key",
            f"{RECORD}.value",
            _without_own_headers(F.col(f"{RECORD}.headers")).alias("headers"),
        )
        send(dead.unionByName(back), settings, None, batch_id)
        job.metrics.count("replayed", back.count())
        job.metrics.count("dead_letters", events.where(F.col(ERROR).isNotNull()).count())
    finally:
        events.unpersist()


def start(job: Job, settings: argparse.Namespace) -> list[StreamingQuery]:
    settings.option = [*settings.option, ("includeHeaders", "true")]
    mode: Literal["replay", "route"] = "replay" if settings.replay else "route"
    topics = settings.dlq_topic if settings.replay else ",".join(settings.topic)
    records = stream(job.spark, settings, topics)
    (replayed if settings.replay else routed)(
        records, settings
    )  # a wrong setting ends the job here
    job.watch(mode)
    query = job.start(
        records.writeStream,
        partial(replay if settings.replay else route, job, settings),
        name=mode,
        checkpoint=settings.checkpoint,
        trigger=settings.trigger,
    )
    return [query]


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse_settings(argv)
    program(NAME, vars(settings), lambda job: job.run(start(job, settings)))
