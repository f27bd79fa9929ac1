"""The page docs/spark/options.md: each option of Spark's Kafka connector, and what our source does with it.

The last column is the result of our parser for a sample value, so the page cannot be wrong about it.
The column on Spark follows its Structured Streaming + Kafka Integration Guide (4.2).
"""

import re
from typing import Final, Literal, NamedTuple

from logfleet_spark.client_options import OptionError
from logfleet_spark.options import sink_options, source_options

Use = Literal["batch", "stream", "write"]
READ: Final[tuple[Use, ...]] = ("batch", "stream")
TOPICS: Final = frozenset({"subscribe", "subscribePattern", "assign"})


class Option(NamedTuple):
    """An option of Spark's connector.

    sample: a valid value. spark: its default and meaning in Spark.
    """

    name: str
    sample: str
    uses: tuple[Use, ...]
    spark: str


OFFSETS: Final = '{"t": {"0": 23}}'
OPTIONS: Final = (
    Option(
        "kafka.bootstrap.servers", "h:9092", (*READ, "write"), "required: HOST:PORT[,HOST:PORT]"
    ),
    Option("subscribe", "t,u", READ, "topics by name"),
    Option("subscribePattern", "t.*", READ, "topics by regular expression"),
    Option("assign", '{"t": [0, 1]}', READ, "partitions"),
    Option(
        "startingOffsets",
        OFFSETS,
        READ,
        "earliest (batch), latest (stream), or by partition; without a checkpoint only",
    ),
    Option(
        "startingTimestamp", "1356998400000", READ, "milliseconds since 1970, for all partitions"
    ),
    Option("startingOffsetsByTimestamp", OFFSETS, READ, "the same by partition"),
    Option(
        "startingOffsetsByTimestampStrategy",
        "latest",
        READ,
        "error: what to do where no record is that new",
    ),
    Option("endingOffsets", OFFSETS, ("batch",), "latest, or by partition; exclusive"),
    Option(
        "endingTimestamp",
        "1356998400000",
        ("batch",),
        "milliseconds since 1970, for all partitions",
    ),
    Option("endingOffsetsByTimestamp", OFFSETS, ("batch",), "the same by partition"),
    Option(
        "failOnDataLoss",
        "false",
        READ,
        "true: whether to fail when records were deleted before they were read",
    ),
    Option("includeHeaders", "true", (*READ, "write"), "false: a column `headers`"),
    Option("minPartitions", "8", READ, "as many as there are partitions: tasks at least"),
    Option("maxRecordsPerPartition", "1000", READ, "none: records of a task at most"),
    Option("maxOffsetsPerTrigger", "1000", ("stream",), "none: records of a micro-batch at most"),
    Option("minOffsetsPerTrigger", "1000", ("stream",), "none: a micro-batch waits for so many"),
    Option("maxTriggerDelay", "5m", ("stream",), "15m: but not longer than this"),
    Option("kafkaConsumer.pollTimeoutMs", "1000", READ, "120000: wait of a task for records"),
    Option("fetchOffset.numRetries", "5", READ, "3: tries to learn offsets"),
    Option("fetchOffset.retryIntervalMs", "20", READ, "10: between them"),
    Option(
        "groupIdPrefix", "p", READ, "spark-kafka-source: of the consumer groups that Spark makes"
    ),
    Option("kafka.group.id", "g", READ, "made by Spark: the group to read as"),
    Option("kafka.client.id", "c", (*READ, "write"), "made by Kafka's client"),
    Option("kafka.client.rack", "a", READ, "none: read from replicas of this zone"),
    Option("kafka.isolation.level", "read_committed", READ, "read_uncommitted"),
    Option("kafka.fetch.min.bytes", "1000", READ, "1"),
    Option("kafka.fetch.max.wait.ms", "100", READ, "500"),
    Option("kafka.fetch.max.bytes", "1000000", READ, "52428800"),
    Option("kafka.max.partition.fetch.bytes", "1000000", READ, "1048576"),
    Option("kafka.request.timeout.ms", "10000", (*READ, "write"), "30000"),
    Option("kafka.default.api.timeout.ms", "30000", (*READ, "write"), "60000"),
    Option("kafka.reconnect.backoff.ms", "100", (*READ, "write"), "50"),
    Option(
        "kafka.metric.reporters",
        "org.apache.kafka.common.metrics.JmxReporter",
        (*READ, "write"),
        "JmxReporter",
    ),
    Option("kafka.session.timeout.ms", "10000", READ, "45000"),
    Option("kafka.max.poll.records", "1000", READ, "500"),
    Option("kafka.auto.offset.reset", "latest", READ, "refused: offsets are Spark's matter"),
    Option("kafka.enable.auto.commit", "true", READ, "refused"),
    Option("kafka.key.deserializer", "x", READ, "refused: keys are binary"),
    Option("kafka.value.deserializer", "x", READ, "refused: values are binary"),
    Option("kafka.security.protocol", "SSL", (*READ, "write"), "PLAINTEXT"),
    Option("topic", "t", ("write",), "none: else each row has a column topic"),
    Option("kafka.acks", "1", ("write",), "all"),
    Option("kafka.enable.idempotence", "true", ("write",), "true"),
    Option("kafka.compression.type", "lz4", ("write",), "none"),
    Option("kafka.linger.ms", "5", ("write",), "0 (5 since Kafka 4.0)"),
    Option("kafka.batch.size", "65536", ("write",), "16384"),
    Option("kafka.buffer.memory", "1000000", ("write",), "33554432"),
    Option("kafka.delivery.timeout.ms", "60000", ("write",), "120000"),
    Option("kafka.max.request.size", "2000000", ("write",), "1048576"),
    Option("kafka.max.block.ms", "10000", ("write",), "60000"),
    Option("kafka.max.in.flight.requests.per.connection", "1", ("write",), "5"),
    Option("kafka.retries", "5", ("write",), "2147483647"),
    Option("kafka.transactional.id", "x", ("write",), "not used by Spark"),
)


OWN: Final = (
    (
        "includeColumns",
        "value,timestamp",
        READ,
        "all but `headers`: the columns of a row; what is left out is not made (`headers` needs no includeHeaders then)",
    ),
    (
        "filterPushdown",
        "true",
        ("batch",),
        "false: filters cut what is read; with `spark.sql.python.filterPushdown.enabled=true`, see below",
    ),
    (
        "exactlyOnce",
        "true",
        ("write",),
        "false: each batch is one transaction, and is written once; see [exactly_once.md](exactly_once.md)",
    ),
    (
        "logfleet.txn.app.id",
        "counts",
        ("write",),
        "the id of the stream's query: whose batches are written once",
    ),
    (
        "logfleet.txn.version",
        "7",
        ("write",),
        "none: the number of the batch, for `foreachBatch`; a stream has its own",
    ),
    (
        "kafka.transaction.timeout.ms",
        "60000",
        ("write",),
        "300000: after that the brokers abort a transaction",
    ),
)
ONCE: Final = frozenset(
    {"logfleet.txn.app.id", "logfleet.txn.version", "kafka.transaction.timeout.ms"}
)
"""Options that are taken beside exactlyOnce=true only."""
"""Options that Spark's connector does not have: name, sample, uses, default and meaning."""
PUSHDOWN: Final = """\
## Filters that cut what is read
Spark hands filters to a source in Python only where `spark.sql.python.filterPushdown.enabled` is true (it is false; `spark.conf.set` or `--conf`),
and ours takes them with the option `filterPushdown=true`:

```python
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
frame = spark.read.format("logfleet").options(**options, filterPushdown="true").load()
frame.where("partition = 3 AND offset >= 1000").explain("formatted")
```

`PushedFilters` of the plan names those that are exact.

- `topic` and `partition` (any comparison, `IN`, `LIKE 'x%'`, `NOT`) and `offset` (`=`, `<`, `<=`, `>`, `>=`) are exact; `offset IN (...)` reads from the
  least to the greatest. `AND` combines them; of `OR`, or of an expression, nothing is cut.
- `timestamp` (`=`, `>`, `>=`, `IN`) cuts the beginning: records before the first one of that time are all older. `<` and `<=` cut nothing, as a
  record behind a younger one may be older; `endingTimestamp` ends a read at the first record of a time.
- **One query per `load()`.** Spark 4.2 keeps one plan of a Python source per frame that `load()` gives: where that frame is filtered twice, in
  a union or a join, or read once more without the filter, all read the ranges of the last plan, and rows are missing. So it is an
  option of each read, and off.

"""


def taken(option: Option, use: Use) -> str:
    """What our parser does with an option: `yes`, its warning, or `no: ` and its error."""
    given = {"kafka.bootstrap.servers": "h:9092", option.name: option.sample}
    if option.name in ONCE:
        given["exactlyOnce"] = "true"
    if use != "write" and option.name not in TOPICS:
        given["subscribe"] = "t"
    try:
        if use == "write":
            unused = sink_options(given).unused
        else:
            unused = source_options(given, streaming=use == "stream").unused
    except OptionError as refused:
        # what else there is, is in this table
        return (
            "no: "
            + re.split(r"; (?:it|a (?:batch read|stream read|write)) takes ", str(refused))[0]
        )
    return f"taken: {unused[0]}" if unused else "yes"


def row(option: Option) -> str:
    by_use = {use: taken(option, use) for use in option.uses}
    if len(set(by_use.values())) == 1:
        ours = next(iter(by_use.values()))
    else:
        ours = "; ".join(f"{use}: {what}" for use, what in by_use.items())
    cells = (f"`{option.name}`", ", ".join(option.uses), option.spark, ours)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def option_docs() -> str:
    """The page."""
    lines = [
        "# Options of the data source, beside Spark's connector",
        "",
        "Made by `make pages` from the code: the last column is the reply of the source. With",
        "`--source kafka` Spark's own connector has them all.",
        "",
        "| option | for | in Spark: default, meaning | in `logfleet` |",
        "|---|---|---|---|",
        *map(row, OPTIONS),
        "",
        "## Options of its own",
        "Spark's connector does not know them, and passes over them.",
        "",
        "| option | for | default, meaning | in `logfleet` |",
        "|---|---|---|---|",
        *(row(Option(*own)) for own in OWN),
        "",
    ]
    return "\n".join(lines) + "\n" + PUSHDOWN.rstrip() + "\n"
