"""Counts the events of a topic per window: reads with either source, writes to console, parquet or a topic.

spark-submit window_counts.py --bootstrap-servers HOST:PORT --topic flights \
    --fields "origin STRING, event_time TIMESTAMP" --event-time event_time --group-by origin \
    --window "1 hour" --watermark "24 hours" --sink parquet --output /data/counts --checkpoint /data/checkpoint
"""

import argparse
from functools import partial

from logfleet_spark.window_counts import (
    WindowCounts,
    as_records,
    counted,
    parsed,
    write_batch,
    write_records,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count the events of a topic per window.")
    add = parser.add_argument
    add("--bootstrap-servers", required=True, help="host:port[,host:port] of the cluster")
    add("--topic", required=True, help="topic to read")
    add(
        "--source", choices=["logfleet", "kafka"], default="logfleet", help="logfleet needs no jars"
    )
    add(
        "--option",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="more options of the source",
    )
    add("--starting-offsets", default="earliest", help="where a job without checkpoint starts")
    add("--max-offsets-per-trigger", type=positive, help="records per micro-batch at most")
    add(
        "--fields",
        default="",
        help="JSON fields of the value, as DDL; left out, values are not read",
    )
    add(
        "--event-time", required=True, help="TIMESTAMP field, or `timestamp`: else the record's own"
    )
    add("--group-by", help="field or `key` to count by")
    add("--where", help="SQL condition that rows must meet")
    add("--window", default="1 hour")
    add("--slide", help="default: the window's length")
    add("--watermark", default="24 hours", help="how late a row may come")
    add("--output-mode", choices=["append", "update"], default="update")
    add("--sink", choices=["console", "parquet", "topic"], default="console")
    add("--output", help="path of the parquet sink or name of the topic to write")
    add("--checkpoint", required=True, help="path for offsets and state")
    add(
        "--trigger",
        default="available-now",
        help='"available-now" or an interval such as "10 seconds"',
    )
    options = parser.parse_args(argv)
    if options.sink != "console" and not options.output:
        parser.error(f"--sink {options.sink} needs --output")
    return options


def read(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    reader = (
        spark.readStream.format(options.source)
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", options.starting_offsets)
    )
    if options.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    for key, value in options.option:
        reader = reader.option(key, value)
    return reader.load()


def written(counts: DataFrame, options: argparse.Namespace) -> DataStreamWriter:
    match options.sink:
        case "console":
            return counts.writeStream.format("console").option("truncate", "false")
        case "topic":
            # batch by batch: Spark gives update mode to no streaming sink that is written in Python
            records = as_records(counts, options.group_by)
            to = {"kafka.bootstrap.servers": options.bootstrap_servers, "topic": options.output}
            return records.writeStream.foreachBatch(partial(write_records, options.source, to))
        case _:
            return counts.writeStream.foreachBatch(partial(write_batch, options.output))


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query that the arguments describe."""
    if options.source == "logfleet":
        from logfleet_spark import register

        register(spark)
    job = WindowCounts(
        fields=options.fields,
        event_time=options.event_time,
        window=options.window,
        watermark=options.watermark,
        group_by=options.group_by,
        slide=options.slide,
        where=options.where,
    )
    counts = counted(parsed(read(spark, options), job.fields), job)
    writer = (
        written(counts, options)
        .outputMode(options.output_mode)
        .option("checkpointLocation", options.checkpoint)
    )
    if options.trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=options.trigger).start()


def main() -> None:
    options = arguments()
    spark = (
        SparkSession.builder.appName(f"window-counts-{options.topic}")
        # event times are taken as they stand; windows must not move with the machine's time zone
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    start(spark, options).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
